// The adversary of an allocator that keeps small and large blocks side by side: large blocks with small ones
// between them, the large ones freed, the small ones kept, and the next round's large blocks a little larger
// than any hole that was left.
//
// A pure function of its parameters: the same trace from the same seed everywhere.
#pragma once

#include <cstdint>
#include <string>

#include "bench/traces/trace_maker.hpp"

namespace apportion::bench {

struct PinHoleShape {
  std::uint64_t large_bytes = std::uint64_t{16} << 20;  // of the first round
  double growth = 1.15;                                 // of the large blocks, by round
  std::uint64_t total_bytes = std::uint64_t{8} << 30;   // of the large blocks of a round
  std::uint64_t small_min = 4096;
  std::uint64_t small_max = 65536;
  unsigned rounds = 12;
  std::uint64_t seed = 1;
};

[[nodiscard]] Trace pin_hole_trace(const PinHoleShape& shape);
[[nodiscard]] std::string to_text(const PinHoleShape& shape);

}  // namespace apportion::bench
