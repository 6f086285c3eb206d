// Writes a trace event by event. A freed block's name is the next block's, as addresses come back.
#pragma once

#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "tests/support/trace.hpp"

namespace apportion::bench {

using testing::Trace;
using testing::TraceEvent;

class TraceMaker {
 public:
  // bytes > 0. The block's name.
  std::uint32_t allocate(std::uint64_t bytes) {
    std::uint32_t block = trace_.blocks;
    if (names_.empty()) {
      ++trace_.blocks;
      sizes_.push_back(bytes);
    } else {
      block = names_.back();
      names_.pop_back();
      sizes_[block] = bytes;
    }
    trace_.events.push_back({TraceEvent::Action::allocate, 0, block, bytes, 0});
    return block;
  }
  void free(std::uint32_t block) {
    trace_.events.push_back({TraceEvent::Action::free, 0, block, sizes_[block], 0});
    names_.push_back(block);
  }
  void free(std::vector<std::uint32_t>& blocks) {
    for (const std::uint32_t block : blocks)
      free(block);
    blocks.clear();
  }
  // What is live stays live at the trace's end.
  [[nodiscard]] Trace take() { return std::move(trace_); }

 private:
  Trace trace_;
  std::vector<std::uint64_t> sizes_;  // of live blocks, by name
  std::vector<std::uint32_t> names_;
};

// Numbers that a seed gives on every machine and standard library: only the engine is the library's.
class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  // low .. high, both included.
  [[nodiscard]] std::uint64_t between(std::uint64_t low, std::uint64_t high) {
    return low + engine_() % (high - low + 1);
  }
  // 0 <= x < 1.
  [[nodiscard]] double real() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }
  // How many events come in a step that has `mean` of them on average (Knuth's product method; small means).
  [[nodiscard]] unsigned poisson(double mean);
  // Rounded down, at least 1.
  [[nodiscard]] std::uint64_t exponential(double mean);

 private:
  std::mt19937_64 engine_;
};

}  // namespace apportion::bench
