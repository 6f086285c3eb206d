#include "config/value.hpp"

#include <charconv>

#include "shm/quote.hpp"

namespace apportion {

namespace {

// "0.5", "1e+300", "nan": the fewest digits that read back as the same number.
std::string shortest(double number) {
  std::array<char, 40> digits{};
  return {digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr};
}

}  // namespace

std::string shown(const Written& written) {
  if (const auto* text = written.as<std::string>()) return in_quotes(*text);
  if (const auto* number = written.as<std::int64_t>()) return in_quotes(std::to_string(*number));
  if (const auto* truth = written.as<bool>()) return *truth ? "\"true\"" : "\"false\"";
  if (const auto* number = written.as<double>()) return in_quotes(shortest(*number));
  if (const auto* other = written.as<Other>()) return other->what;
  return "a list";
}

bool Value::says_auto() const {
  const std::string* text = written_.as<std::string>();
  return text != nullptr && *text == "auto";
}

void Value::refuse(const std::string& what) {
  errors_.push_back({line_, file_ + ":" + std::to_string(line_) + ": " + path_ + ": " + what});
}

void Value::refuse_type(const std::string& wanted) {
  refuse(shown(written_) + " has the wrong type; write " + wanted);
}

std::optional<Fraction> Value::fraction_of(double number) {
  Result<Fraction> fraction = parse_fraction(number);
  if (fraction) return *fraction;
  refuse(fraction.error().message);
  return std::nullopt;
}

std::optional<Amount> Value::amount() {
  const double* number = written_.as<double>();
  if (number == nullptr) {
    return spelled(parse_amount, R"(a size such as "12GiB" or a fraction such as "25%")");
  }
  const std::optional<Fraction> fraction = fraction_of(*number);
  return fraction ? std::optional<Amount>{*fraction} : std::nullopt;
}

std::optional<Amount> Value::amount_above_zero() {
  std::optional<Amount> value = amount();
  if (value != Amount{0_B}) return value;
  refuse(shown(written_) + " is zero; write a size above it");
  return std::nullopt;
}

std::optional<Bytes> Value::bytes() {
  return spelled(parse_bytes, R"(a size such as "512MiB")");
}

std::optional<Share> Value::share() {
  const double* number = written_.as<double>();
  if (number == nullptr) return spelled(parse_share, R"(a share such as "0.5", "0.5-0.8" or "0.5+")");
  const std::optional<Fraction> fraction = fraction_of(*number);
  return fraction ? std::optional<Share>{{*fraction, *fraction}} : std::nullopt;
}

std::optional<Duration> Value::duration() {
  return spelled(parse_duration, R"(a duration such as "2s" or "500ms")");
}

std::optional<bool> Value::boolean() {
  if (const bool* value = written_.as<bool>()) return *value;
  refuse_type("true or false, without quotes");
  return std::nullopt;
}

std::optional<std::int64_t> Value::integer(std::int64_t least, std::int64_t most) {
  const std::int64_t* value = written_.as<std::int64_t>();
  if (value != nullptr && *value >= least && *value <= most) return *value;
  const std::string wanted = "a whole number from " + std::to_string(least) + " to " + std::to_string(most);
  if (value == nullptr) {
    refuse_type(wanted);
  } else {
    refuse(shown(written_) + " is out of range; write " + wanted);
  }
  return std::nullopt;
}

}  // namespace apportion
