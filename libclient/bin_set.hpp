// The heads of the free lists of one stream, with a bitmap in two levels over them.
//
// Promises: `next_from` finds the first non-empty bin at or above another in two bit scans, whatever the
// number of free blocks. Never: knows what a block is; the lists themselves run through the nodes.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "libclient/size_bins.hpp"

namespace apportion {

class BinSet {
 public:
  static constexpr std::uint32_t kNoBin = kBins;

  [[nodiscard]] bool empty() const { return summary_ == 0; }
  // The first node of a bin; 0 where the bin is empty.
  [[nodiscard]] std::uint32_t head(std::uint32_t bin) const { return heads_[bin]; }
  // In all nodes of the set.
  [[nodiscard]] std::uint64_t units() const { return units_; }

  // A node of `units` becomes the head. Returns the head before it.
  std::uint32_t push(std::uint32_t bin, std::uint32_t node, std::uint32_t units) {
    units_ += units;
    const std::uint32_t before = heads_[bin];
    heads_[bin] = node;
    if (before == 0) {
      words_[bin / 64] |= std::uint64_t{1} << (bin % 64);
      summary_ |= 1U << (bin / 64);
    }
    return before;
  }
  // The head goes; `next`, 0 where it was the last, takes its place.
  void pop(std::uint32_t bin, std::uint32_t next) {
    heads_[bin] = next;
    if (next == 0) {
      const std::uint64_t left = words_[bin / 64] &= ~(std::uint64_t{1} << (bin % 64));
      if (left == 0) summary_ &= ~(1U << (bin / 64));
    }
  }
  // A node of `units` goes, from wherever it is listed.
  void subtract(std::uint32_t units) { units_ -= units; }

  // The first non-empty bin at or above `bin`, or kNoBin.
  [[nodiscard]] std::uint32_t next_from(std::uint32_t bin) const {
    if (bin >= kBins) return kNoBin;
    const std::uint64_t word = words_[bin / 64] >> (bin % 64);
    if (word != 0) return bin + static_cast<std::uint32_t>(std::countr_zero(word));
    const std::uint32_t above = summary_ & ~((2U << (bin / 64)) - 1);
    if (above == 0) return kNoBin;
    const auto index = static_cast<std::uint32_t>(std::countr_zero(above));
    return index * 64 + static_cast<std::uint32_t>(std::countr_zero(words_[index]));
  }

  // The last non-empty bin, or kNoBin.
  [[nodiscard]] std::uint32_t last() const {
    if (summary_ == 0) return kNoBin;
    const auto index = 31U - static_cast<std::uint32_t>(std::countl_zero(summary_));
    return index * 64 + 63U - static_cast<std::uint32_t>(std::countl_zero(words_[index]));
  }

 private:
  static_assert(kBins % 64 == 0 && kBins / 64 < 31);

  std::uint32_t summary_ = 0;
  std::uint64_t units_ = 0;
  std::array<std::uint64_t, kBins / 64> words_{};
  std::array<std::uint32_t, kBins> heads_{};
};

}  // namespace apportion
