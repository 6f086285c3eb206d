#include "bench/traces/pin_hole.hpp"

#include <sstream>

namespace apportion::bench {

Trace pin_hole_trace(const PinHoleShape& shape) {
  TraceMaker maker;
  Random random(shape.seed);
  double large = static_cast<double>(shape.large_bytes);
  for (unsigned round = 0; round < shape.rounds; ++round, large *= shape.growth) {
    const auto bytes = static_cast<std::uint64_t>(large);
    std::vector<std::uint32_t> blocks;
    for (std::uint64_t sum = 0; sum + bytes <= shape.total_bytes; sum += bytes) {
      blocks.push_back(maker.allocate(bytes));
      maker.allocate(random.between(shape.small_min, shape.small_max));
    }
    maker.free(blocks);
  }
  return maker.take();
}

std::string to_text(const PinHoleShape& shape) {
  std::ostringstream out;
  out << "large_bytes=" << shape.large_bytes << " growth=" << shape.growth
      << " total_bytes=" << shape.total_bytes << " small=" << shape.small_min << ".." << shape.small_max
      << " rounds=" << shape.rounds << " seed=" << shape.seed;
  return out.str();
}

}  // namespace apportion::bench
