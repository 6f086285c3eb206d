#include "bench/replay.hpp"

#include "libclient/arena_ranges.hpp"

namespace apportion::bench {

Replay::Replay(const Trace& trace) : blocks(trace.blocks) {
  struct Live {
    std::uint64_t bytes = 0;
    std::uint64_t stream = 0;
  };
  std::vector<Live> live(blocks);
  std::uint64_t bytes = 0;
  std::uint64_t small = 0;
  std::uint64_t count = 0;
  const auto end = [&](std::uint32_t block, std::uint64_t stream) {
    bytes -= live[block].bytes;
    if (live[block].bytes <= ArenaRanges::kSmallBlock) small -= live[block].bytes;
    live[block].bytes = 0;
    --count;
    ++pairs;
    steps.push_back({0, stream, block});
  };
  for (const TraceEvent& event : trace.events) {
    if (event.action == TraceEvent::Action::allocate) {
      live[event.block] = {event.bytes, event.stream};
      bytes += event.bytes;
      if (event.bytes <= ArenaRanges::kSmallBlock) small += event.bytes;
      peak_bytes = std::max(peak_bytes, bytes);
      small_peak_bytes = std::max(small_peak_bytes, small);
      large_peak_bytes = std::max(large_peak_bytes, bytes - small);
      peak_blocks = std::max(peak_blocks, ++count);
      steps.push_back({event.bytes, event.stream, event.block});
    } else if (event.action == TraceEvent::Action::free && live[event.block].bytes != 0) {
      end(event.block, event.stream);
    }
  }
  for (std::uint32_t block = 0; block < blocks; ++block)
    if (live[block].bytes != 0) end(block, live[block].stream);
}

}  // namespace apportion::bench
