#include "libclient/block_table.hpp"

#include <cstdlib>
#include <new>

namespace apportion {

BlockTable::BlockTable(std::uint32_t units, std::uint32_t shift)
    : shift_(shift), leaves_((units >> shift >> kLeafBits) + 1) {}

bool BlockTable::cover(std::uint32_t first, std::uint32_t units) {
  const std::uint32_t end = ((first + units - 1) >> shift_ >> kLeafBits) + 1;
  const auto made = [this](std::uint32_t leaf) {
    return leaves_[leaf].entries.load(std::memory_order_relaxed) != nullptr;
  };
  for (std::uint32_t leaf = first >> shift_ >> kLeafBits; leaf != end;) {
    if (made(leaf)) {
      ++leaf;
      continue;
    }
    std::uint32_t next = leaf + 1;
    while (next != end && !made(next))
      ++next;
    try {
      owned_.emplace_back();
    } catch (const std::bad_alloc&) {
      return false;
    }
    constexpr std::size_t kLeafBytes = (kLeafMask + 1) * sizeof(Entry);
    owned_.back().reset(static_cast<std::uint32_t*>(std::calloc(next - leaf, kLeafBytes)));
    std::uint32_t* entries = owned_.back().get();
    if (entries == nullptr) return owned_.pop_back(), false;
    for (; leaf != next; ++leaf, entries += kLeafMask + 1)
      leaves_[leaf].entries.store(entries, std::memory_order_release);
  }
  return true;
}

void BlockTable::Free::operator()(std::uint32_t* entries) const {
  std::free(entries);
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
