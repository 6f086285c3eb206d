// Where an arena's blocks lie: two ranges of addresses. Reserved once per process and device; with slabs,
// names that no memory has (slab_addresses.hpp).
#pragma once

#include <cstdint>

#include "libclient/chunk_source.hpp"

namespace apportion {

struct ArenaRanges {
  // Blocks up to this size go to the small range, so that small blocks do not pin the chunks of large ones.
  static constexpr std::uint64_t kSmallBlock = 1 << 20;
  // The large range is this many times the device, the small one once: a hole for any block can always be
  // found, and the address space taken is a fixed small multiple of the device's memory (R11).
  static constexpr std::uint64_t kLargeFactor = 3;
  // Offsets are counted in 32 bits of 512 bytes. On a device so large that a range would be longer, the range
  // ends here, and so does what one session can hold in it.
  static constexpr std::uint64_t kMaxRange = std::uint64_t{1} << 40;

  Address small = 0;  // both multiples of the granularity
  Address large = 0;
  std::uint32_t small_slots = 0;
  std::uint32_t large_slots = 0;
  Bytes chunk;
  Bytes granularity;                // of exact blocks; divides the chunk size
  std::uint32_t growth_chunks = 1;  // growth asks for at least so many where it can get them

  // What the source maps at one time is one slab: it cannot be moved, goes back whole, and no block spans
  // two. All blocks but exact ones are in the small range then, whatever their size.
  bool slabs = false;

  bool membarrier = true;  // false: as where the kernel has none (OwnerBarrier)

  // The sizes for a device; the addresses are the caller's. Small chunks are asked for several at a time, so
  // that a message and a set-access bring 32 MiB.
  [[nodiscard]] static ArenaRanges for_device(Bytes total, Bytes chunk, Bytes granularity) {
    ArenaRanges ranges;
    const std::uint64_t slots = round_up(total, chunk) / chunk;
    const std::uint64_t most = kMaxRange / chunk.value;
    ranges.small_slots = static_cast<std::uint32_t>(slots < most ? slots : most);
    ranges.large_slots =
        static_cast<std::uint32_t>(slots * kLargeFactor < most ? slots * kLargeFactor : most);
    ranges.chunk = chunk;
    ranges.granularity = granularity;
    ranges.growth_chunks = chunk >= 32_MiB ? 1U : static_cast<std::uint32_t>(32_MiB / chunk);
    return ranges;
  }
  // The same for slabs, in slots of the granularity: a slab is a whole number of them.
  [[nodiscard]] static ArenaRanges for_slabs(Bytes total, Bytes granularity) {
    ArenaRanges ranges = for_device(total, granularity, granularity);
    ranges.small_slots = ranges.large_slots;
    ranges.slabs = true;
    return ranges;
  }
  [[nodiscard]] Bytes small_bytes() const { return chunk * small_slots; }
  [[nodiscard]] Bytes large_bytes() const { return chunk * large_slots; }
};

}  // namespace apportion
