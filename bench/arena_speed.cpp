// Gates A1 and A2: nanoseconds of the thread per pair, against Ref8 without and with a mutex; and info().
//
// All is mapped before, as for A8: what growing and remapping cost is another gate's. How many driver calls
// there were all the same is said beside. Rounds of the three are interleaved, each in turn the first; each
// replays the trace once to have it warm, and then as often as makes kPairs. The time is the thread's own, so
// that another program on the processor costs what it evicts from the caches and no more.
#include <time.h>
#include <unistd.h>

#include <array>
#include <chrono>

#include "bench/allocators.hpp"
#include "bench/gates.hpp"
#include "bench/library.hpp"
#include "bench/replay.hpp"

namespace apportion::bench {
namespace {

constexpr std::uint64_t kPairs = 100'000;

double thread_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

// Nanoseconds per pair; below 0 where the allocator ran out of room.
template <typename Allocator>
double time_pairs(Allocator& allocator, const Replay& trace, std::vector<typename Allocator::Handle>& blocks,
                  std::uint64_t passes) {
  if (!replay(allocator, trace, blocks)) return -1;
  const double start = thread_ns();
  for (std::uint64_t pass = 0; pass < passes; ++pass)
    if (!replay(allocator, trace, blocks)) return -1;
  return (thread_ns() - start) / static_cast<double>(passes * trace.pairs);
}

Status measure_trace(Run& run, Stage& stage, const NamedTrace& named, Library& library) {
  const Replay trace(named.trace);
  if (Status room = library.make_room(trace, 1); !room) return room;
  const std::uint64_t calls = stage.device().calls_of(::getpid());
  const std::uint64_t passes = run.options.brief ? 1 : kPairs / trace.pairs + 1;
  const std::uint64_t room = 2 * trace.peak_bytes + (64_MiB).value;
  Plain8 plain(room, trace.peak_blocks);
  Locked8 locked(room, trace.peak_blocks);
  std::vector<void*> pointers(trace.blocks);
  std::vector<Ref8::Block> handles(trace.blocks);
  std::array<std::vector<double>, 3> times;
  for (unsigned round = 0; round < run.options.rounds; ++round) {
    for (unsigned turn = 0; turn < times.size(); ++turn) {
      const unsigned who = (round + turn) % times.size();
      const double ns = who == 0   ? time_pairs(library, trace, pointers, passes)
                        : who == 1 ? time_pairs(plain, trace, handles, passes)
                                   : time_pairs(locked, trace, handles, passes);
      if (ns < 0) {
        static constexpr std::array kNames{"the library", "Ref8", "Ref8 + mutex"};
        return Error{Errc::out_of_memory, named.name + ": " + kNames[who] + " has no room for it: " +
                                              (who == 0 ? apportion_last_error() : "fragmented")};
      }
      times[who].push_back(ns);
    }
  }
  const auto driver_calls = static_cast<double>(stage.device().calls_of(::getpid()) - calls);
  run.report.add_timed("A1", named.name, "pair / Ref8", 1.15, times[0], times[1], "ns");
  run.report.add_timed("A2", named.name, "pair / (Ref8 + mutex)", 0.65, times[0], times[2], "ns");
  for (std::size_t i = run.report.gates.size() - 2; i < run.report.gates.size(); ++i)
    run.report.gates[i].absolute.emplace_back("driver_calls", driver_calls);
  return Done{};
}

}  // namespace

Status measure_speed(Run& run) {
  const Result<Stage*> stage = run.arena_stage();
  if (!stage) return stage.error();
  for (const NamedTrace& trace : run.traces) {
    if (trace.adversarial) continue;
    Result<Library> library = Library::attach((*stage)->socket(), "bench");
    if (!library) return library.error();
    Status measured = measure_trace(run, **stage, trace, *library);
    library->detach();
    if (!measured) return measured;
  }
  return Done{};
}

Status measure_info(Run& run) {
  const Result<Stage*> stage = run.arena_stage();
  if (!stage) return stage.error();
  Result<Library> library = Library::attach((*stage)->socket(), "bench");
  if (!library) return library.error();
  constexpr unsigned kCalls = 100'000;
  apportion_info info{};
  std::vector<double> times;
  bool failed = false;
  for (unsigned round = 0; round < run.options.rounds; ++round) {
    const double start = thread_ns();
    for (unsigned call = 0; call < kCalls; ++call) {
      info.struct_size = sizeof info;
      failed = apportion_get_info(library->client(), &info) != APPORTION_OK || failed;
    }
    times.push_back((thread_ns() - start) / kCalls);
  }
  library->detach();
  if (failed) return Error{Errc::not_attached, apportion_last_error()};
  run.report.plain.push_back(
      {"info", "apportion_get_info, one thread", spread_of(times).median, "ns", "no system call"});
  return Done{};
}

}  // namespace apportion::bench
