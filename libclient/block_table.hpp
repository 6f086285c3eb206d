// From the offset of a block to its node, in two loads.
//
// One entry per 2^shift units. Promises: set and get are O(1) and allocate nothing; `cover` allocates the
// leaves of a range before blocks can start in it. Never: two blocks whose offsets share an entry (blocks
// above 1 MiB start more than 1 MiB apart, so one entry per MiB does for them).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace apportion {

class BlockTable {
 public:
  // units: length of the address range.
  BlockTable(std::uint32_t units, std::uint32_t shift);

  // Makes entries for [first, first + units). False where the host has no memory; nothing is lost then.
  [[nodiscard]] bool cover(std::uint32_t first, std::uint32_t units);

  // 0 where no block starts. An offset outside the range is the caller's error.
  [[nodiscard]] std::uint32_t get(std::uint32_t unit) const {
    const std::uint32_t index = unit >> shift_;
    const auto& leaf = leaves_[index >> kLeafBits];
    return leaf ? leaf[index & kLeafMask] : 0;
  }
  // Only for covered offsets.
  void set(std::uint32_t unit, std::uint32_t node) {
    const std::uint32_t index = unit >> shift_;
    leaves_[index >> kLeafBits][index & kLeafMask] = node;
  }

  // How many entries are not 0: for check().
  [[nodiscard]] std::uint64_t count() const;

 private:
  static constexpr std::uint32_t kLeafBits = 11;
  static constexpr std::uint32_t kLeafMask = (1U << kLeafBits) - 1;

  std::uint32_t shift_;
  std::vector<std::unique_ptr<std::uint32_t[]>> leaves_;
};

}  // namespace apportion
