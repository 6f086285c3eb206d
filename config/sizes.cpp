#include "config/sizes.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>

#include "shm/quote.hpp"

namespace apportion {
namespace {

__extension__ using Wide = unsigned __int128;

constexpr std::size_t kMaxDigits = 18;          // below 10^18: products with any unit stay far below 2^128
constexpr std::size_t kMaxFractionDigits = 15;  // so that 100 x 10^15 fits 64 bits

constexpr const char* kBytesHelp = R"(write a size such as "12GiB" or "512MiB")";
constexpr const char* kFractionHelp = R"(write a fraction such as "25%", "0.25" or "1/4")";
constexpr const char* kAmountHelp =
    R"(write a size such as "12GiB", or a fraction such as "25%", "0.25" or "1/4")";
constexpr const char* kShareHelp =
    R"(write "0.5", "0.5-0.8" or "0.5+"; fractions may also be "25%" or "1/4")";
constexpr const char* kDurationHelp = R"(write a duration such as "2s", "500ms" or "1m30s")";

struct Unit {
  std::string_view name;
  std::uint64_t bytes;
};
constexpr std::array<Unit, 17> kUnits{{{"B", 1},
                                       {"KiB", 1ULL << 10},
                                       {"Ki", 1ULL << 10},
                                       {"K", 1ULL << 10},
                                       {"KB", 1000},
                                       {"MiB", 1ULL << 20},
                                       {"Mi", 1ULL << 20},
                                       {"M", 1ULL << 20},
                                       {"MB", 1000ULL * 1000},
                                       {"GiB", 1ULL << 30},
                                       {"Gi", 1ULL << 30},
                                       {"G", 1ULL << 30},
                                       {"GB", 1000ULL * 1000 * 1000},
                                       {"TiB", 1ULL << 40},
                                       {"Ti", 1ULL << 40},
                                       {"T", 1ULL << 40},
                                       {"TB", 1000ULL * 1000 * 1000 * 1000}}};

Error refuse(std::string_view text, const std::string& what, const char* help) {
  return {Errc::invalid, in_quotes(text) + " " + what + "; " + help};
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

std::uint64_t power_of_ten(std::size_t exponent) {
  std::uint64_t power = 1;
  while (exponent-- > 0)
    power *= 10;
  return power;
}

// Digits with at most one point among them: value = digits / 10^scale. `rest` is what follows.
struct Decimal {
  std::uint64_t digits = 0;
  std::size_t scale = 0;
  bool has_point = false;
  bool too_long = false;
  std::string_view rest;
};

// None where `text` does not begin with a digit, or where a point has no digit after it.
std::optional<Decimal> scan_decimal(std::string_view text) {
  Decimal out;
  std::size_t at = 0;
  std::size_t significant = 0;
  const auto take_digits = [&] {
    const std::size_t first = at;
    for (; at < text.size() && is_digit(text[at]); ++at) {
      if (significant > 0 || text[at] != '0') ++significant;
      if (significant > kMaxDigits) out.too_long = true;
      if (!out.too_long) out.digits = out.digits * 10 + static_cast<std::uint64_t>(text[at] - '0');
    }
    return at - first;
  };
  if (take_digits() == 0) return std::nullopt;
  if (at < text.size() && text[at] == '.') {
    out.has_point = true;
    ++at;
    out.scale = take_digits();
    if (out.scale == 0) return std::nullopt;
    if (out.scale > kMaxDigits) out.too_long = true;
  }
  out.rest = text.substr(at);
  return out;
}

// What is wrong with a text that no rule of the grammar fits: the slips that have a name of their own.
std::string why_unknown(std::string_view text) {
  if (text.empty()) return "is empty";
  if (text.front() == '-') return "is negative";
  for (const char c : text) {
    if (c == ' ' || c == '\t') return "has a space in it";
  }
  const std::optional<Decimal> number = scan_decimal(text);
  if (!number) return "is no spelling that is known here";
  if (number->rest.empty() && !number->has_point) return "is a bare integer without a unit";
  for (const Unit& unit : kUnits) {
    const std::string_view rest = number->rest;
    if (rest.size() != unit.name.size()) continue;
    bool same = true;
    for (std::size_t i = 0; i < rest.size(); ++i)
      same = same && (rest[i] & ~0x20) == (unit.name[i] & ~0x20);
    if (same) return "has a unit in the wrong letters (" + std::string{unit.name} + " is one)";
  }
  return "has a unit that is not known here";
}

Result<Bytes> bytes_of(std::string_view text, const Decimal& number, const Unit& unit, const char* help) {
  if (number.too_long) return refuse(text, "has too many digits", help);
  const Wide scaled = Wide{number.digits} * unit.bytes;
  const Wide divisor = power_of_ten(number.scale);
  if (scaled % divisor != 0) return refuse(text, "is not a whole number of bytes", help);
  const Wide bytes = scaled / divisor;
  if (bytes > kMaxSize.value) return refuse(text, "is more than 1 PiB, which no device has", help);
  return Bytes{static_cast<std::uint64_t>(bytes)};
}

Result<Fraction> fraction_of(std::string_view text, std::uint64_t numerator, std::uint64_t denominator,
                             const char* help) {
  if (numerator == 0) return refuse(text, "is a fraction of zero", help);  // F40
  if (numerator > denominator) return refuse(text, "is a fraction above 1", help);
  return make_fraction(numerator, denominator);
}

Result<Fraction> ratio_of(std::string_view text, const Decimal& left, const char* help) {
  const std::optional<Decimal> right = scan_decimal(left.rest.substr(1));
  if (!right || !right->rest.empty() || left.has_point || right->has_point) {
    return refuse(text, "is not a ratio of two whole numbers", help);
  }
  if (left.too_long || right->too_long) return refuse(text, "has too many digits", help);
  if (right->digits == 0) return refuse(text, "divides by zero", help);
  return fraction_of(text, left.digits, right->digits, help);
}

// `wanted` tells which of the two kinds the caller takes; the refusal of the other kind is the caller's.
Result<Amount> parse(std::string_view text, const char* help) {
  const std::optional<Decimal> number = scan_decimal(text);
  if (!number) return refuse(text, why_unknown(text), help);
  const std::string_view rest = number->rest;
  for (const Unit& unit : kUnits) {
    if (rest != unit.name) continue;
    Result<Bytes> bytes = bytes_of(text, *number, unit, help);
    if (!bytes) return bytes.error();
    return Amount{*bytes};
  }
  Result<Fraction> fraction = Error{};
  if (rest.starts_with('/')) {
    fraction = ratio_of(text, *number, help);
  } else if (rest == "%" || (rest.empty() && number->has_point)) {
    if (number->too_long || number->scale > kMaxFractionDigits)
      return refuse(text, "has too many digits", help);
    fraction = fraction_of(text, number->digits, power_of_ten(number->scale) * (rest == "%" ? 100 : 1), help);
  } else {
    return refuse(text, why_unknown(text), help);
  }
  if (!fraction) return fraction.error();
  return Amount{*fraction};
}

}  // namespace

Result<Amount> parse_amount(std::string_view text) {
  return parse(text, kAmountHelp);
}

Result<Bytes> parse_bytes(std::string_view text) {
  Result<Amount> amount = parse(text, kBytesHelp);
  if (!amount) return amount.error();
  if (const Bytes* bytes = std::get_if<Bytes>(&*amount)) return *bytes;
  return refuse(text, "is a fraction, where only a size is understood", kBytesHelp);
}

Result<Fraction> parse_fraction(std::string_view text) {
  Result<Amount> amount = parse(text, kFractionHelp);
  if (!amount) return amount.error();
  if (const Fraction* fraction = std::get_if<Fraction>(&*amount)) return *fraction;
  return refuse(text, "is a size, where only a fraction is understood", kFractionHelp);
}

Result<Fraction> parse_fraction(double number) {
  if (!std::isfinite(number)) {  // F40
    return refuse(std::isnan(number) ? "nan"
                  : number > 0       ? "inf"
                                     : "-inf",
                  "is not a finite number", kFractionHelp);
  }
  // The shortest digits that read back as the same double are what the file's author wrote (up to 15 of
  // them).
  std::array<char, 400> digits{};
  const auto [end, failed] =
      std::to_chars(digits.data(), digits.data() + digits.size(), number, std::chars_format::fixed);
  if (failed != std::errc{})
    return Error{Errc::invalid, std::string{"a float out of range; "} + kFractionHelp};
  std::string text{digits.data(), end};
  if (text.find('.') == std::string::npos) text += ".0";
  return parse_fraction(text);
}

Result<Share> parse_share(std::string_view text) {
  if (text.empty() || text.front() == '-') return refuse(text, why_unknown(text), kShareHelp);
  const bool grows = text.ends_with('+');
  const std::string_view body = grows ? text.substr(0, text.size() - 1) : text;
  const std::size_t dash = body.find('-');
  if (grows && dash != std::string_view::npos) return refuse(text, R"(has both a "-" and a "+")", kShareHelp);

  const std::array<std::string_view, 2> parts{body.substr(0, dash),
                                              dash == std::string_view::npos ? body : body.substr(dash + 1)};
  std::array<Fraction, 2> fractions;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    Result<Amount> amount = parse(parts[i], kShareHelp);
    if (!amount) {
      if (parts[i].size() == text.size()) return amount.error();
      return Error{Errc::invalid, "in " + in_quotes(text) + ": " + amount.error().message};
    }
    if (std::holds_alternative<Bytes>(*amount)) {
      return refuse(text, "holds a size, and a share is of the pool",
                    R"(write sizes as guarantee = and limit =)");
    }
    fractions.at(i) = std::get<Fraction>(*amount);
  }
  if (fractions[1] < fractions[0]) return refuse(text, "has a limit below its guarantee", kShareHelp);
  if (grows) return Share{fractions[0], std::nullopt};
  return Share{fractions[0], fractions[1]};
}

Result<Duration> parse_duration(std::string_view text) {
  struct TimeUnit {
    std::string_view name;
    std::uint64_t milliseconds;
  };
  constexpr std::array<TimeUnit, 4> kTimeUnits{{{"h", 3'600'000}, {"m", 60'000}, {"s", 1000}, {"ms", 1}}};
  constexpr std::uint64_t kMaxMilliseconds = 30ULL * 24 * 3'600'000;

  if (text.empty() || text.front() == '-') return refuse(text, why_unknown(text), kDurationHelp);
  std::uint64_t total = 0;
  std::size_t next_unit = 0;  // units come in falling order, each once
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::optional<Decimal> number = scan_decimal(rest);
    if (!number || number->has_point) return refuse(text, "is not a duration", kDurationHelp);
    rest = number->rest;
    std::size_t letters = 0;
    while (letters < rest.size() && !is_digit(rest[letters]))
      ++letters;
    const std::string_view name = rest.substr(0, letters);
    if (name.empty()) return refuse(text, "is a bare integer without a unit", kDurationHelp);
    std::size_t unit = next_unit;
    while (unit < kTimeUnits.size() && kTimeUnits.at(unit).name != name)
      ++unit;
    if (unit == kTimeUnits.size()) return refuse(text, "is not a duration", kDurationHelp);
    next_unit = unit + 1;
    // Each term alone is checked first, so that neither the product nor the sum can wrap.
    const Wide term = Wide{number->digits} * kTimeUnits.at(unit).milliseconds;
    if (number->too_long || term > kMaxMilliseconds)
      return refuse(text, "is more than 30 days", kDurationHelp);
    total += static_cast<std::uint64_t>(term);
    rest = rest.substr(letters);
  }
  if (total > kMaxMilliseconds) return refuse(text, "is more than 30 days", kDurationHelp);
  return Duration{static_cast<Duration::rep>(total)};
}

std::string spell(Bytes bytes) {
  constexpr std::array<Unit, 4> kBinary{
      {{"TiB", 1ULL << 40}, {"GiB", 1ULL << 30}, {"MiB", 1ULL << 20}, {"KiB", 1ULL << 10}}};
  for (const Unit& unit : kBinary) {
    if (bytes.value == 0 || bytes.value % unit.bytes != 0) continue;
    return std::to_string(bytes.value / unit.bytes) + std::string{unit.name};
  }
  return std::to_string(bytes.value) + "B";
}

std::string spell(Fraction fraction) {
  constexpr std::size_t kDecimals = 6;  // 0.25 reads better than 1/4, and 1/3 has no decimals
  const std::uint64_t scale = power_of_ten(kDecimals);
  if (scale % fraction.denominator != 0) {
    return std::to_string(fraction.numerator) + "/" + std::to_string(fraction.denominator);
  }
  const std::uint64_t millionths = fraction.of(scale);
  if (millionths == scale) return "1.0";
  std::string digits = std::to_string(scale + millionths).substr(1);
  while (digits.back() == '0')
    digits.pop_back();
  return "0." + digits;
}

std::string spell(const Amount& amount) {
  return std::visit([](const auto& value) { return spell(value); }, amount);
}

std::string spell(const Share& share) {
  if (!share.limit) return spell(share.guarantee) + "+";
  if (*share.limit == share.guarantee) return spell(share.guarantee);
  return spell(share.guarantee) + "-" + spell(*share.limit);
}

std::string spell(Duration duration) {
  auto rest = static_cast<std::uint64_t>(duration.count());
  if (rest == 0) return "0s";
  std::string text;
  for (const auto& [name, unit] :
       {std::pair{"h", 3'600'000ULL}, {"m", 60'000ULL}, {"s", 1000ULL}, {"ms", 1ULL}}) {
    if (rest / unit > 0) text += std::to_string(rest / unit) + name;
    rest %= unit;
  }
  return text;
}

}  // namespace apportion
