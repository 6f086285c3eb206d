// From the offset of a block to its node, in two loads.
//
// One entry per 2^shift units: the node, and for a small block its size and whether a magazine has it, so
// that a thread can free one without a lock. Promises: get and set are O(1) and allocate nothing; `cover`
// allocates the leaves of a range before blocks can start in it; an entry may be read and changed without the
// arena's lock by the thread that has its block (double frees of two threads at one moment are theirs to
// avoid). Never: two blocks whose offsets share an entry (blocks above 1 MiB start more than 1 MiB apart, so
// one entry per MiB does for them).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

namespace apportion {

class BlockTable {
 public:
  // An entry: 24 bits of node, 7 of size in units (0: not a size that magazines keep), 1 for a magazine's.
  using Entry = std::uint32_t;
  static constexpr std::uint32_t kMostNodes = 1U << 24;
  static constexpr Entry kKept = 1U << 31;
  [[nodiscard]] static constexpr std::uint32_t node_of(Entry entry) { return entry & (kMostNodes - 1); }
  [[nodiscard]] static constexpr std::uint32_t size_of(Entry entry) { return entry >> 24 & 0x7f; }
  [[nodiscard]] static constexpr Entry entry_of(std::uint32_t node, std::uint32_t size) {
    return node | size << 24;
  }

  // units: length of the address range.
  BlockTable(std::uint32_t units, std::uint32_t shift);

  // Makes entries for [first, first + units). False where the host has no memory; nothing is lost then. What
  // it makes at a time is one piece of zeros, so that of a large one the host pays for what is used.
  [[nodiscard]] bool cover(std::uint32_t first, std::uint32_t units);

  // 0 where no block starts. An offset outside the range is the caller's error.
  [[nodiscard]] Entry get(std::uint32_t unit) const {
    const std::uint32_t index = unit >> shift_;
    std::uint32_t* const leaf = leaves_[index >> kLeafBits].entries.load(std::memory_order_acquire);
    return leaf != nullptr ? std::atomic_ref(leaf[index & kLeafMask]).load(std::memory_order_relaxed) : 0;
  }
  // Only for covered offsets.
  void set(std::uint32_t unit, Entry entry) {
    const std::uint32_t index = unit >> shift_;
    std::uint32_t* const leaf = leaves_[index >> kLeafBits].entries.load(std::memory_order_relaxed);
    std::atomic_ref(leaf[index & kLeafMask]).store(entry, std::memory_order_relaxed);
  }

  // How many entries are not 0, and how many are magazines': for check().
  struct Count {
    std::uint64_t blocks = 0;
    std::uint64_t kept = 0;
  };
  [[nodiscard]] Count count() const;

 private:
  static constexpr std::uint32_t kLeafBits = 11;
  static constexpr std::uint32_t kLeafMask = (1U << kLeafBits) - 1;
  struct Leaf {
    std::atomic<std::uint32_t*> entries{nullptr};
  };
  struct Free {
    void operator()(std::uint32_t* entries) const;
  };

  std::uint32_t shift_;
  std::vector<Leaf> leaves_;
  std::vector<std::unique_ptr<std::uint32_t, Free>> owned_;  // leaves side by side, as they were covered
};

}  // namespace apportion
