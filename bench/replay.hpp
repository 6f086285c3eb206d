// Replays a trace against an allocator: the loop that the arena's gates time.
//
// An allocator has a type Handle (a default one is "none"), `Handle allocate(bytes, stream)` and
// `void free(Handle, stream)`, and `static bool none(Handle)`. The loop is the same for all of them, and what
// it costs itself is in both sides of every ratio.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "bench/traces/trace_maker.hpp"

namespace apportion::bench {

// A trace without what is not replayed, and with frees of all that is live at its end: it begins and ends
// with nothing, and every allocation is half of a pair.
struct Replay {
  struct Step {
    std::uint64_t bytes;  // 0: free
    std::uint64_t stream;
    std::uint32_t block;
  };
  std::vector<Step> steps;
  std::uint32_t blocks = 0;
  std::uint64_t pairs = 0;
  std::uint64_t peak_bytes = 0;        // live, as asked for
  std::uint64_t small_peak_bytes = 0;  // of blocks up to 1 MiB
  std::uint64_t large_peak_bytes = 0;  // of the others; the two may peak at different times
  std::uint64_t peak_blocks = 0;

  explicit Replay(const Trace& trace);
};

// False where an allocation finds no room. `blocks` then has none for what is not live, if it began so.
template <typename Allocator>
[[nodiscard]] bool replay(Allocator& allocator, const Replay& trace,
                          std::vector<typename Allocator::Handle>& blocks) {
  for (const Replay::Step& step : trace.steps) {
    auto& block = blocks[step.block];
    if (step.bytes != 0) {
      block = allocator.allocate(step.bytes, step.stream);
      if (Allocator::none(block)) return false;
    } else {
      allocator.free(block, step.stream);
      block = {};
    }
  }
  return true;
}

}  // namespace apportion::bench
