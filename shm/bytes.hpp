// A number of bytes as a type of its own. Sizes never travel as bare integers.
//
// Promises: arithmetic that would wrap, in either direction, ends the process: a size that wrapped is a
// broken invariant, and a quota that wrapped is a hole. Where a result below zero is meant to be zero, say so
// with `saturating_sub`. Never: parses text (config/sizes does).
#pragma once

#include <compare>
#include <cstdint>
#include <string>

namespace apportion {

struct Bytes {
  std::uint64_t value = 0;

  friend constexpr auto operator<=>(Bytes, Bytes) = default;
};

// Prints to standard error which operation wrapped, and aborts.
[[noreturn]] void bytes_wrapped(const char* operation, std::uint64_t left, std::uint64_t right) noexcept;

[[nodiscard]] constexpr Bytes operator+(Bytes a, Bytes b) {
  std::uint64_t sum = 0;
  if (__builtin_add_overflow(a.value, b.value, &sum)) bytes_wrapped("+", a.value, b.value);
  return {sum};
}
[[nodiscard]] constexpr Bytes operator-(Bytes a, Bytes b) {
  if (b.value > a.value) bytes_wrapped("-", a.value, b.value);
  return {a.value - b.value};
}
[[nodiscard]] constexpr Bytes operator*(Bytes a, std::uint64_t n) {
  std::uint64_t product = 0;
  if (__builtin_mul_overflow(a.value, n, &product)) bytes_wrapped("*", a.value, n);
  return {product};
}
// How many whole `b` fit into `a`. b must not be zero.
[[nodiscard]] constexpr std::uint64_t operator/(Bytes a, Bytes b) {
  if (b.value == 0) bytes_wrapped("/", a.value, b.value);
  return a.value / b.value;
}
constexpr Bytes& operator+=(Bytes& a, Bytes b) {
  return a = a + b;
}
constexpr Bytes& operator-=(Bytes& a, Bytes b) {
  return a = a - b;
}

// a - b, or zero where b is the larger.
[[nodiscard]] constexpr Bytes saturating_sub(Bytes a, Bytes b) {
  return {a.value > b.value ? a.value - b.value : 0};
}
// The largest multiple of `unit` that is not above `a`. unit must not be zero.
[[nodiscard]] constexpr Bytes round_down(Bytes a, Bytes unit) {
  return unit * (a / unit);
}
// The smallest multiple of `unit` that is not below `a`. unit must not be zero.
[[nodiscard]] constexpr Bytes round_up(Bytes a, Bytes unit) {
  const Bytes down = round_down(a, unit);
  return down == a ? a : down + unit;
}

// "18.25 GiB", "512 MiB", "0 B": two decimals at most, for people. Exact figures go out as integers.
[[nodiscard]] std::string to_text(Bytes bytes);

inline namespace literals {
consteval Bytes operator""_B(unsigned long long n) {
  return {n};
}
consteval Bytes operator""_KiB(unsigned long long n) {
  return {n << 10};
}
consteval Bytes operator""_MiB(unsigned long long n) {
  return {n << 20};
}
consteval Bytes operator""_GiB(unsigned long long n) {
  return {n << 30};
}
}  // namespace literals

}  // namespace apportion
