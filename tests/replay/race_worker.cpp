// One process of the race: waits, makes its context and reads its numbers, waits, takes memory the way JAX
// does, checks it, holds it until told to stop, and checks it once more.
//
// Standard output: one JSON object a line, each with "event" and "pid":
//   {"event":"ready"}                                  it runs, and has not touched the device
//   {"event":"told","told_bytes":..,"free_bytes":..,"wanted_bytes":..,"error":..}      after the first gate
//   {"event":"result", the same, "got_bytes":..,"tries":..,"ok":..}                    after the second gate
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
#include "tests/replay/jax_classic.hpp"
#include "tests/replay/leased_memory.hpp"
#include "tests/replay/pytorch_native.hpp"

namespace apportion::replay {
namespace {

using nlohmann::json;

constexpr Bytes kCheckedUnit = 32_MiB;  // the size of a chunk: its first and last 8 bytes are checked

struct Arguments {
  std::string device = "0";
  bool pytorch = false;
  BareMemory::Backing backing = BareMemory::Backing::mem_alloc;
  JaxClassic jax;
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
    if (key == "--framework" && std::string(value) == "jax")
      out.pytorch = false;
    else if (key == "--framework" && std::string(value) == "pytorch")
      out.pytorch = true;
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
    else if (key == "--fraction" && number(value, out.jax.fraction))
      continue;
    else if (key == "--first-request" && number(value, out.jax.first_request.value))
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

// What the worker took, and why it is less than it wanted.
struct Taken {
  std::vector<Block> blocks;
  Bytes wanted;
  unsigned tries = 0;  // refused ones included
  std::string error;
};

Taken take_as_jax(Memory& memory, const Arguments& arguments, Replayed& plan) {
  jax_classic_take(memory, arguments.jax, plan);
  Taken taken{
      .blocks = {}, .wanted = plan.wanted.value_or(Bytes{}), .tries = plan.tries, .error = plan.error};
  if (plan.pool) taken.blocks.push_back(*plan.pool);
  return taken;
}

// PyTorch wants its tensors, not a share: a small training run in what is free.
Taken take_as_pytorch(Memory& memory, const Replayed& plan) {
  Taken taken{.blocks = {}, .wanted = {}, .tries = 0, .error = plan.error};
  if (!plan.told_free) return taken;
  PytorchNative allocator(memory);
  if (Status done = run_steps(allocator, small_training_run(*plan.told_free)); !done)
    taken.error = done.error().message;
  taken.blocks = allocator.segments();
  taken.wanted = allocator.counts().reserved;
  taken.tries = static_cast<unsigned>(allocator.counts().segments_asked);
  return taken;
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

// Takes part in the race with `memory`, as far as the gates open.
void race(const Device& device, Memory& memory, const Arguments& arguments) {
  const auto tag = static_cast<std::uint64_t>(::getpid());
  if (!pass_gate(arguments.gate_fd)) return;
  Replayed plan;
  if (Status started = memory.start(); started)
    plan = jax_classic_plan(memory, arguments.jax);
  else
    plan.error = started.error().message;
  if (arguments.pytorch) plan.wanted = plan.told_free;
  json told = figures(plan);
  told["event"] = "told";
  say(told);
  if (!pass_gate(arguments.gate_fd)) return;
  Taken taken = arguments.pytorch ? take_as_pytorch(memory, plan) : take_as_jax(memory, arguments, plan);
  Bytes got;
  for (const Block& block : taken.blocks) {
    if (auto checked = check_block(memory, block, kCheckedUnit, tag))
      got += *checked;
    else
      taken.error = checked.error().message;
  }
  const Result<Mapping> behind = go_behind(device, arguments, taken);
  if (!behind) taken.error = behind.error().message;
  json result = figures(plan);
  result["event"] = "result";
  result["got_bytes"] = got.value;
  result["tries"] = taken.tries;
  result["error"] = taken.error.empty() ? json() : json(taken.error);
  result["ok"] =
      plan.wanted && got.value != 0 && got >= taken.wanted && (!arguments.pytorch || taken.error.empty());
  say(result);
  while (pass_gate(arguments.gate_fd)) {
  }
  Bytes kept;
  for (const Block& block : taken.blocks)
    if (auto checked = check_again(memory, block, kCheckedUnit, tag)) kept += *checked;
  say({{"event", "end"}, {"kept_bytes", kept.value}});
}

int run(int argc, char** argv) {
  Arguments arguments;
  if (!parse(argc, argv, arguments)) {
    std::fprintf(
        stderr,
        "usage: replay_race_worker [--device 0|UUID|sim:SIZE] [--framework jax|pytorch] [--job NAME]\n"
        "       [--backing mem_alloc|vmm] [--fraction 0.75]\n"
        "       [--first-request BYTES] [--gate-fd 0]\n");
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
