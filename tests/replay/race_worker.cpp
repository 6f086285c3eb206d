// One process of the race: waits, makes its context and reads its numbers, waits, takes memory the way its
// framework does, checks it, holds it until told to stop, and checks it once more.
//
// Standard output: one JSON object a line, each with "event" and "pid":
//   {"event":"ready"}                                  it runs, and has not touched the device
//   {"event":"told","told_bytes":..,"free_bytes":..,"wanted_bytes":..,"error":..}      after the first gate
//   {"event":"step", the same, "cache_bytes":..}       after each further gate but the last; vllm has two
//   {"event":"result", the same, "got_bytes":..,"tries":..,"ok":..}                    after the last gate
//   {"event":"end","kept_bytes":..}                    after the gate closed: bytes that still hold what was
//   written
// Gates: one byte each from --gate-fd (default 0); its end of file stops the worker at any point.
// Sizes in bytes; null where it did not get that far. Exit status: 0 when it ran to its end, 2 on bad
// arguments.
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gpu/device.hpp"
#include "tests/replay/bare_memory.hpp"
#include "tests/replay/behind_the_back.hpp"
#include "tests/replay/frameworks.hpp"
#include "tests/replay/leased_memory.hpp"

namespace apportion::replay {
namespace {

using nlohmann::json;

constexpr Bytes kCheckedUnit = 32_MiB;  // the size of a chunk: its first and last 8 bytes are checked

struct Arguments {
  std::string device = "0";
  std::string framework = "jax";
  BareMemory::Backing backing = BareMemory::Backing::mem_alloc;
  FrameworkParams params;
  int gate_fd = 0;
  std::string job;            // through the broker, as this job; empty: on the bare device
  std::string pass_chunk_to;  // behind the broker's back: behind_the_back.hpp
  std::string take_chunk_from;
};

template <typename Number>
bool number(const char* text, Number& out) {
  const char* end = text + std::strlen(text);
  return std::from_chars(text, end, out).ptr == end && end != text;
}

bool parse(int argc, char** argv, Arguments& out) {
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string key = argv[i];
    const char* value = argv[i + 1];
    if (key == "--framework" && is_framework(value))
      out.framework = value;
    else if (key == "--device")
      out.device = value;
    else if (key == "--backing" && std::string(value) == "mem_alloc")
      out.backing = BareMemory::Backing::mem_alloc;
    else if (key == "--backing" && std::string(value) == "vmm")
      out.backing = BareMemory::Backing::vmm;
    else if (key == "--job")
      out.job = value;
    else if (key == "--pass-chunk-to")
      out.pass_chunk_to = value;
    else if (key == "--take-chunk-from")
      out.take_chunk_from = value;
    else if (key == "--run" && std::string(value) == "fragmenting")
      out.params.fragmenting = true;
    else if (key == "--fraction" && number(value, out.params.fraction))
      continue;
    else if (key == "--first-request" && number(value, out.params.first_request.value))
      continue;
    else if (key == "--growth" && number(value, out.params.growth.value))
      continue;
    else if (key == "--utilization" && number(value, out.params.vllm.utilization))
      continue;
    else if (key == "--weights" && number(value, out.params.vllm.weights.value))
      continue;
    else if (key == "--activations" && number(value, out.params.vllm.activations.value))
      continue;
    else if (key == "--gate-fd" && number(value, out.gate_fd))
      continue;
    else
      return false;
  }
  return argc % 2 == 1;
}

// True: a byte came. False: the gate is closed.
bool pass_gate(int fd) {
  char byte = 0;
  ssize_t n = 0;
  do
    n = ::read(fd, &byte, 1);
  while (n < 0 && errno == EINTR);
  return n == 1;
}

void say(json line) {
  line["pid"] = ::getpid();
  std::printf("%s\n", line.dump().c_str());
  std::fflush(stdout);
}

json or_null(const std::optional<Bytes>& bytes) {
  return bytes ? json(bytes->value) : json();
}

json figures(const Replayed& replayed) {
  return {{"told_bytes", or_null(replayed.told_total)},
          {"free_bytes", or_null(replayed.told_free)},
          {"wanted_bytes", or_null(replayed.wanted)},
          {"error", replayed.error.empty() ? json() : json(replayed.error)}};
}

// The chunk that another program passed on stays mapped as long as the answer lives.
Result<Mapping> go_behind(const Device& device, const Arguments& arguments, const Taken& taken) {
  if (!arguments.take_chunk_from.empty()) return take_chunk(device, kCheckedUnit, arguments.take_chunk_from);
  if (!arguments.pass_chunk_to.empty() && !taken.blocks.empty()) {
    // Not the block's first byte: a block may begin in a chunk that is not wholly its own.
    const std::uint64_t inside = taken.blocks.front().address + kCheckedUnit.value;
    if (Status passed = pass_chunk(device, inside, arguments.pass_chunk_to); !passed) return passed.error();
  }
  return Mapping{};
}

// What a step came to, of a framework that is not done yet.
void say_step(const Replayed& plan, const Taken& taken) {
  json line = figures(plan);
  line["event"] = "step";
  line["error"] = taken.error.empty() ? json() : json(taken.error);
  line["cache_bytes"] = taken.cache_bytes ? json(*taken.cache_bytes) : json();
  say(line);
}

// Bytes of the blocks whose words are as check_block wrote them; writes them first where `write`.
Bytes good_bytes(Memory& memory, Taken& taken, bool write) {
  const auto tag = static_cast<std::uint64_t>(::getpid());
  Bytes good;
  for (const Block& block : taken.blocks) {
    if (auto checked = write ? check_block(memory, block, kCheckedUnit, tag)
                             : check_again(memory, block, kCheckedUnit, tag))
      good += *checked;
    else
      taken.error = checked.error().message;
  }
  return good;
}

// Takes part in the race with `memory`, as far as the gates open.
void race(const Device& device, Memory& memory, const Arguments& arguments) {
  if (!pass_gate(arguments.gate_fd)) return;
  const auto framework = framework_named(arguments.framework, memory, arguments.params);
  Replayed plan;
  const Status started = memory.start();
  if (started)
    plan = framework->plan();
  else
    plan.error = started.error().message;
  json told = figures(plan);
  told["event"] = "told";
  say(told);
  Taken taken;
  for (unsigned step = 0; step < framework->steps(); ++step) {
    if (step != 0) say_step(plan, taken);
    if (!pass_gate(arguments.gate_fd)) return;
    taken.error = plan.error;
    if (started) taken = framework->step(step);
  }
  const Bytes got = good_bytes(memory, taken, true);
  const Result<Mapping> behind = go_behind(device, arguments, taken);
  if (!behind) taken.error = behind.error().message;
  json result = figures(plan);
  result["event"] = "result";
  result["got_bytes"] = got.value;
  result["tries"] = taken.tries;
  result["error"] = taken.error.empty() ? json() : json(taken.error);
  result["cache_bytes"] = taken.cache_bytes ? json(*taken.cache_bytes) : json();
  result["ok"] = plan.wanted && got.value != 0 && got >= taken.wanted && taken.error.empty();
  say(result);
  while (pass_gate(arguments.gate_fd)) {
  }
  say({{"event", "end"}, {"kept_bytes", good_bytes(memory, taken, false).value}});
}

int run(int argc, char** argv) {
  Arguments arguments;
  if (!parse(argc, argv, arguments)) {
    std::fprintf(
        stderr,
        "usage: replay_race_worker [--device 0|UUID|sim:SIZE] [--job NAME] [--backing mem_alloc|vmm]\n"
        "       [--framework jax|jax-growing|tensorflow|vllm|pytorch|pytorch-expandable] [--gate-fd 0]\n"
        "       [--fraction 0.75] [--first-request BYTES] [--growth BYTES] [--run fragmenting]\n"
        "       [--utilization 0.9] [--weights BYTES] [--activations BYTES]\n");
    return 2;
  }
  say({{"event", "ready"}});
  auto device = Device::open(arguments.device);
  if (!device) {
    std::fprintf(stderr, "replay_race_worker: %s\n", device.error().message.c_str());
    return 1;
  }
  if (arguments.job.empty()) {
    BareMemory memory(*device, arguments.backing);
    race(*device, memory, arguments);
  } else {
    LeasedMemory memory(*device, arguments.job);
    race(*device, memory, arguments);
  }
  return 0;
}

}  // namespace
}  // namespace apportion::replay

int main(int argc, char** argv) {
  return apportion::replay::run(argc, argv);
}
