// Replays a trace again and again: nanoseconds of the thread per pair, and under `valgrind --tool=callgrind
// --toggle-collect=replay` instructions. `trace_pairs arena FILE ROUNDS`: the arena over a model;
// `trace_pairs api FILE ROUNDS [DIVISOR]`: the C API, attached to the broker that APPORTION_SOCKET names,
// sizes divided. Two rounds before `replay` warm up.
#include <apportion/apportion.h>
#include <time.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "tests/support/trace.hpp"
#include "tests/unit/libclient/model_source.hpp"

using namespace apportion;
using namespace apportion::testing;

namespace {

struct OverArena {
  ModelArena model{4000, 32_MiB};
  std::uint64_t allocate(std::uint64_t bytes, std::uint64_t stream) {
    if (const Address block = model.arena.try_allocate({bytes}, stream); block != 0) return block;
    const Result<Address> block = model.arena.allocate({bytes}, stream);
    return block ? *block : 0;
  }
  void free(std::uint64_t block, std::uint64_t stream) {
    if (!model.arena.try_deallocate(block, stream)) std::abort();
  }
};

struct OverApi {
  apportion_client* client = nullptr;
  OverApi() {
    if (apportion_attach(nullptr, &client) == APPORTION_OK) return;
    std::fprintf(stderr, "%s\n", apportion_last_error());
    std::exit(1);
  }
  ~OverApi() { apportion_detach(client); }
  static apportion_stream of(std::uint64_t stream) { return reinterpret_cast<apportion_stream>(stream); }
  std::uint64_t allocate(std::uint64_t bytes, std::uint64_t stream) {
    void* pointer = nullptr;
    if (apportion_allocate(client, bytes, of(stream), 0, &pointer) != APPORTION_OK) {
      std::fprintf(stderr, "%s\n", apportion_last_error());
      return 0;
    }
    return reinterpret_cast<std::uint64_t>(pointer);
  }
  void free(std::uint64_t block, std::uint64_t stream) {
    if (apportion_deallocate(client, reinterpret_cast<void*>(block), of(stream)) != APPORTION_OK)
      std::abort();
  }
};

template <typename Over>
std::uint64_t round(Over& over, const Trace& trace, std::vector<std::uint64_t>& blocks) {
  std::uint64_t pairs = 0;
  for (const TraceEvent& event : trace.events) {
    std::uint64_t& block = blocks[event.block];
    if (event.action == TraceEvent::Action::allocate) {
      block = over.allocate(event.bytes, event.stream);
      if (block == 0) std::abort();
    } else if (event.action == TraceEvent::Action::free && block != 0) {
      over.free(block, event.stream);
      block = 0;
      ++pairs;
    }
  }
  for (std::uint64_t& block : blocks) {
    if (block == 0) continue;
    over.free(block, 0);
    block = 0;
    ++pairs;
  }
  return pairs;
}

}  // namespace

extern "C" __attribute__((noinline)) std::uint64_t replay(void* over, bool api, const Trace& trace,
                                                          std::vector<std::uint64_t>& blocks, int rounds) {
  std::uint64_t pairs = 0;
  for (int i = 0; i < rounds; ++i) {
    pairs += api ? round(*static_cast<OverApi*>(over), trace, blocks)
                 : round(*static_cast<OverArena*>(over), trace, blocks);
  }
  return pairs;
}

namespace {

double thread_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

template <typename Over>
int run(const Trace& trace, int rounds) {
  Over over;
  std::vector<std::uint64_t> blocks(trace.blocks);
  round(over, trace, blocks);
  round(over, trace, blocks);
  const double start = thread_ns();
  const std::uint64_t pairs = replay(&over, std::is_same_v<Over, OverApi>, trace, blocks, rounds);
  const double time = thread_ns() - start;
  std::printf("%llu pairs, %.1f ns each\n", static_cast<unsigned long long>(pairs),
              time / static_cast<double>(pairs));
  return 0;
}
}  // namespace

int main(int argc, char** argv) {
  if (argc != 4 && argc != 5) return 2;
  Result<Trace> trace = read_trace(argv[2]);
  if (!trace) return 2;
  const std::uint64_t divisor = argc == 5 ? std::strtoull(argv[4], nullptr, 10) : 1;
  for (TraceEvent& event : trace->events)
    event.bytes = (event.bytes + divisor - 1) / divisor;
  const int rounds = std::atoi(argv[3]);
  return std::strcmp(argv[1], "api") == 0 ? run<OverApi>(*trace, rounds) : run<OverArena>(*trace, rounds);
}
