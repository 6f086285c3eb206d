// The spellings of sizes, shares and durations in apportion.toml, `--share` and the like, and their exact
// printing. The grammar:
//
//   bytes     12GiB = 12Gi = 12G = 12 x 2^30; 12GB = 12 x 10^9; K, M, T likewise; 12B; 1.5GiB where that is a
//   whole
//             number of bytes
//   fraction  15%  0.15  1.0  1/4: above 0, at most 1
//   share     FRACTION (fixed), FRACTION-FRACTION (guarantee-limit), FRACTION+ (guarantee, may grow to all)
//   duration  2s  500ms  1m30s  1h
//
// Promises: what is parsed is exact, or is refused with the offending text and what to write instead. Nothing
// is ever read as "unlimited" (C8: "10Gi" was once read as 10 bytes elsewhere). Whitespace is not part of any
// spelling. Pure; thread-safe.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "config/fraction.hpp"
#include "shm/bytes.hpp"
#include "shm/result.hpp"

namespace apportion {

// What a size key holds: bytes, or a fraction of something the key names (the pool, the device).
using Amount = std::variant<Bytes, Fraction>;

// A share of the pool. No limit: may grow to the whole pool.
struct Share {
  Fraction guarantee;
  std::optional<Fraction> limit;

  friend bool operator==(const Share&, const Share&) = default;
};

// No size above this parses: sums of all jobs' sizes stay far from wrapping.
inline constexpr Bytes kMaxSize{1ULL << 50};

using Duration = std::chrono::milliseconds;

// Each returns Errc::invalid with one line that quotes `text`. Zero bytes ("0B") and zero time ("0s") parse:
// whether zero makes sense is for the key to say. A zero fraction never parses (F40).
[[nodiscard]] Result<Amount> parse_amount(std::string_view text);
[[nodiscard]] Result<Bytes> parse_bytes(std::string_view text);
[[nodiscard]] Result<Fraction> parse_fraction(std::string_view text);
[[nodiscard]] Result<Share> parse_share(std::string_view text);
[[nodiscard]] Result<Duration> parse_duration(std::string_view text);
// A TOML float is a fraction: 0.15 is 15/100, not the double nearest to it. NaN and infinity are refused.
[[nodiscard]] Result<Fraction> parse_fraction(double number);

// The spelling that parses back to the same value: "18688MiB", "1/4", "1/4-1/2", "1m30s".
// (to_text(Bytes) of shm is for people, and rounds.)
[[nodiscard]] std::string spell(Bytes bytes);
[[nodiscard]] std::string spell(Fraction fraction);
[[nodiscard]] std::string spell(const Amount& amount);
[[nodiscard]] std::string spell(const Share& share);
[[nodiscard]] std::string spell(Duration duration);

}  // namespace apportion
