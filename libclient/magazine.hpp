// Freed small blocks that one thread keeps at hand for one stream, by size.
//
// A size is a whole number of units up to kMost (32 KiB). Promises: push and pop are a few instructions. A
// block in it counts as live in its range, and is for its stream at once: it was freed there, or was free for
// it. Never: a lock, or a thought about threads; that is ThreadMagazines'.
#pragma once

#include <array>
#include <cstdint>

#include "libclient/stream_tags.hpp"

namespace apportion {

class Magazine {
 public:
  static constexpr std::uint32_t kMost = 64;

  [[nodiscard]] static constexpr std::uint32_t capacity(std::uint32_t units) {
    return units <= kFew ? 16 : 8;
  }

  static constexpr Stream kVacant = StreamTags::kLegacy;  // no canonical stream
  Stream stream = kVacant;                                // a vacant one is empty

  [[nodiscard]] std::uint32_t count(std::uint32_t units) const { return counts_[units]; }
  [[nodiscard]] bool full(std::uint32_t units) const { return counts_[units] == capacity(units); }
  // Not full.
  void push(std::uint32_t units, std::uint32_t unit) { blocks_[first(units) + counts_[units]++] = unit; }
  // Not empty: the one pushed last.
  std::uint32_t pop(std::uint32_t units) { return blocks_[first(units) + --counts_[units]]; }
  [[nodiscard]] std::uint32_t at(std::uint32_t units, std::uint32_t index) const {
    return blocks_[first(units) + index];
  }
  // The `many` pushed first go; the caller has dealt with them.
  void forget(std::uint32_t units, std::uint32_t many) {
    counts_[units] = static_cast<std::uint8_t>(counts_[units] - many);
    for (std::uint32_t index = 0; index < counts_[units]; ++index)
      blocks_[first(units) + index] = blocks_[first(units) + index + many];
  }

 private:
  static constexpr std::uint32_t kFew = 16;  // sizes up to this many units, 8 KiB, have 16 places
  [[nodiscard]] static constexpr std::uint32_t first(std::uint32_t units) {
    return units <= kFew ? (units - 1) * 16 : kFew * 16 + (units - kFew - 1) * 8;
  }

  std::array<std::uint8_t, kMost + 1> counts_{};
  // Not initialised: pages of it that no thread uses are never touched.
  std::array<std::uint32_t, kFew * 16 + (kMost - kFew) * 8> blocks_;
};

}  // namespace apportion
