// Ref8: the peer of the arena's gates. A good-fit allocator of offsets in two-level bins, 8 an octave.
//
// Written from the published algorithm (two-level segregated fit: M. Masmano, I. Ripoll, A. Crespo, J. Real,
// "TLSF: a new dynamic memory allocator for real-time systems", ECRTS 2004; with bins as small floats of 3
// bits of mantissa, as offset allocators for GPU heaps have them). Handles name blocks, so that freeing finds
// its node without a table; sizes and offsets are in the caller's units; nothing is locked, and no memory is
// touched but its own. allocate and free are O(1). Never: grows, moves, allocates host memory after the
// constructor.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

namespace apportion::bench {

class Ref8 {
 public:
  static constexpr std::uint32_t kNone = 0xffff'ffffU;

  struct Block {
    std::uint32_t offset = kNone;  // kNone: no room
    std::uint32_t node = kNone;
  };

  // `units` of free room, at most 2^31; at most `blocks` free and taken blocks at any time.
  Ref8(std::uint32_t units, std::uint32_t blocks);

  // units > 0. Good fit: any block of the first bin in which all fit; the rest of it stays free.
  [[nodiscard]] Block allocate(std::uint32_t units) noexcept;
  // A block that allocate returned and that was not freed since.
  void free(Block block) noexcept;

  [[nodiscard]] std::uint64_t free_units() const { return free_units_; }
  // The first broken rule in words; empty where all is well. Slow.
  [[nodiscard]] std::string check() const;

 private:
  static constexpr std::uint32_t kBins = 256;  // 8 to an octave
  // Half a cache line, and never across two.
  struct alignas(32) Node {
    std::uint32_t offset;
    std::uint32_t units;
    std::uint32_t bin_before;
    std::uint32_t bin_after;
    std::uint32_t left;
    std::uint32_t right;
    std::uint32_t bin;  // kTaken where it is in none
  };
  static constexpr std::uint32_t kTaken = kNone;

  void list(std::uint32_t id) noexcept;
  void unlist(std::uint32_t id) noexcept;
  void clear(std::uint32_t bin) noexcept;

  std::uint32_t top_ = 0;                       // bit t: some bin of t's eight is not empty
  std::array<std::uint8_t, kBins / 8> leaf_{};  // bit b: that bin is not empty
  std::array<std::uint32_t, kBins> head_;
  std::unique_ptr<Node[]> nodes_;
  std::unique_ptr<std::uint32_t[]> spare_;  // a stack of node ids
  std::uint32_t spares_ = 0;
  std::uint32_t count_;
  std::uint64_t free_units_ = 0;
};

}  // namespace apportion::bench
