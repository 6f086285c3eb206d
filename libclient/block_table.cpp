#include "libclient/block_table.hpp"

#include <new>

namespace apportion {

BlockTable::BlockTable(std::uint32_t units, std::uint32_t shift)
    : shift_(shift), leaves_((units >> shift >> kLeafBits) + 1) {}

bool BlockTable::cover(std::uint32_t first, std::uint32_t units) {
  const std::uint32_t last_leaf = (first + units - 1) >> shift_ >> kLeafBits;
  for (std::uint32_t leaf = first >> shift_ >> kLeafBits; leaf <= last_leaf; ++leaf) {
    if (leaves_[leaf]) continue;
    leaves_[leaf].reset(new (std::nothrow) std::uint32_t[kLeafMask + 1]());
    if (!leaves_[leaf]) return false;
  }
  return true;
}

std::uint64_t BlockTable::count() const {
  std::uint64_t entries = 0;
  for (const auto& leaf : leaves_) {
    if (!leaf) continue;
    for (std::uint32_t index = 0; index <= kLeafMask; ++index)
      entries += leaf[index] != 0 ? 1U : 0U;
  }
  return entries;
}

}  // namespace apportion
