// Which bin a free block of a given size lies in: 32 bins an octave, so a bin's sizes differ by at most 3.2
// %.
//
// Sizes are in units of kUnit. Below 32 units (16 KiB) each size has a bin of its own. Pure functions.
#pragma once

#include <bit>
#include <cstdint>

namespace apportion {

// Every block starts at and is a multiple of this many bytes: what the frameworks expect of device memory.
inline constexpr std::uint64_t kUnit = 512;

inline constexpr std::uint32_t kSubBinBits = 5;
inline constexpr std::uint32_t kBins = 896;  // bin_of(2^32 - 1) + 1

// The bin whose smallest size is not above `units`. units > 0.
[[nodiscard]] constexpr std::uint32_t bin_of(std::uint32_t units) {
  if (units < (1U << kSubBinBits)) return units;
  const std::uint32_t octave = 31U - static_cast<std::uint32_t>(std::countl_zero(units));
  const std::uint32_t sub = (units >> (octave - kSubBinBits)) & ((1U << kSubBinBits) - 1);
  return ((octave - kSubBinBits + 1) << kSubBinBits) | sub;
}

// The smallest size of a bin: bin_of(bin_floor(b)) == b.
[[nodiscard]] constexpr std::uint32_t bin_floor(std::uint32_t bin) {
  if (bin < (1U << kSubBinBits)) return bin;
  const std::uint32_t octave = (bin >> kSubBinBits) - 1 + kSubBinBits;
  const std::uint32_t sub = bin & ((1U << kSubBinBits) - 1);
  return (1U << octave) | (sub << (octave - kSubBinBits));
}

static_assert(bin_of(0xffffffffU) == kBins - 1);

}  // namespace apportion
