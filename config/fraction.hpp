// A fraction above 0 and at most 1, as two whole numbers: 1/4, 0.25 and 25% are the same value, so they give
// the same number of chunks. No double is ever multiplied with a size.
//
// Promises: reduced, so == compares values; products are taken in 128 bits and rounded down once.
#pragma once

#include <compare>
#include <cstdint>

#include "shm/bytes.hpp"

namespace apportion {

struct Fraction {
  std::uint64_t numerator = 1;
  std::uint64_t denominator = 1;

  friend constexpr bool operator==(Fraction, Fraction) = default;
  // By value, exactly (128-bit cross products).
  friend std::strong_ordering operator<=>(Fraction a, Fraction b);

  // floor(whole * this). Never above `whole`.
  [[nodiscard]] std::uint64_t of(std::uint64_t whole) const;
  [[nodiscard]] Bytes of(Bytes whole) const { return {of(whole.value)}; }
};

// numerator / denominator, reduced. Both must be above 0 and numerator <= denominator.
[[nodiscard]] Fraction make_fraction(std::uint64_t numerator, std::uint64_t denominator);

}  // namespace apportion
