#include "libclient/block_table.hpp"

#include <new>

namespace apportion {

BlockTable::BlockTable(std::uint32_t units, std::uint32_t shift)
    : shift_(shift), leaves_((units >> shift >> kLeafBits) + 1) {}

bool BlockTable::cover(std::uint32_t first, std::uint32_t units) {
  const std::uint32_t last_leaf = (first + units - 1) >> shift_ >> kLeafBits;
  for (std::uint32_t leaf = first >> shift_ >> kLeafBits; leaf <= last_leaf; ++leaf) {
    if (leaves_[leaf].entries.load(std::memory_order_relaxed) != nullptr) continue;
    auto* const entries = new (std::nothrow) std::uint32_t[kLeafMask + 1]();
    if (entries == nullptr) return false;
    leaves_[leaf].entries.store(entries, std::memory_order_release);
  }
  return true;
}

BlockTable::Count BlockTable::count() const {
  Count count;
  for (const Leaf& leaf : leaves_) {
    std::uint32_t* const entries = leaf.entries.load(std::memory_order_relaxed);
    if (entries == nullptr) continue;
    for (std::uint32_t index = 0; index <= kLeafMask; ++index) {
      const Entry entry = std::atomic_ref(entries[index]).load(std::memory_order_relaxed);
      count.blocks += entry != 0 ? 1U : 0U;
      count.kept += (entry & kKept) != 0 ? 1U : 0U;
    }
  }
  return count;
}

}  // namespace apportion
