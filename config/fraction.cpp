#include "config/fraction.hpp"

#include <numeric>

#include "shm/result.hpp"

namespace apportion {
namespace {
__extension__ using Wide = unsigned __int128;
}

std::strong_ordering operator<=>(Fraction a, Fraction b) {
  const Wide left = Wide{a.numerator} * b.denominator;
  const Wide right = Wide{b.numerator} * a.denominator;
  if (left < right) return std::strong_ordering::less;
  return left > right ? std::strong_ordering::greater : std::strong_ordering::equal;
}

std::uint64_t Fraction::of(std::uint64_t whole) const {
  return static_cast<std::uint64_t>(Wide{whole} * numerator / denominator);
}

Fraction make_fraction(std::uint64_t numerator, std::uint64_t denominator) {
  APPORTION_CHECK(numerator > 0 && numerator <= denominator);
  const std::uint64_t divisor = std::gcd(numerator, denominator);
  return {numerator / divisor, denominator / divisor};
}

}  // namespace apportion
