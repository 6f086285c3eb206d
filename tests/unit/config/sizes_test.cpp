#include "config/sizes.hpp"

#include <cmath>
#include <limits>

#include "tests/support/catch.hpp"

using namespace apportion;

namespace {

Amount amount(const char* text) {
  INFO(text);
  Result<Amount> parsed = parse_amount(text);
  if (!parsed) FAIL(parsed.error().message);
  return *parsed;
}

void check_refused(const Status& parsed, const std::string& text, const std::string& reason) {
  INFO(text);
  REQUIRE_FALSE(parsed.ok());
  CHECK(parsed.error().code == Errc::invalid);
  INFO(parsed.error().message);
  CHECK(parsed.error().message.find("\"" + text + "\"") != std::string::npos);
  CHECK(parsed.error().message.find(reason) != std::string::npos);
  CHECK(parsed.error().message.find("write ") != std::string::npos);
}

template <typename T>
Status status_of(const Result<T>& result) {
  if (result) return Done{};
  return result.error();
}

struct Refusal {
  const char* text;
  const char* reason;
};

}  // namespace

TEST_CASE("C8: every size spelling of the grammar is read exactly") {
  constexpr std::uint64_t kGi = 1ULL << 30;
  CHECK(amount("12GiB") == Amount{Bytes{12 * kGi}});
  CHECK(amount("12Gi") == Amount{Bytes{12 * kGi}});
  CHECK(amount("12G") == Amount{Bytes{12 * kGi}});
  CHECK(amount("10Gi") == amount("10GiB"));
  CHECK(amount("10G") == Amount{Bytes{10737418240}});
  CHECK(amount("12GB") == Amount{Bytes{12'000'000'000}});
  CHECK(amount("7MiB") == Amount{Bytes{7ULL << 20}});
  CHECK(amount("7Mi") == Amount{Bytes{7ULL << 20}});
  CHECK(amount("7M") == Amount{Bytes{7ULL << 20}});
  CHECK(amount("7MB") == Amount{Bytes{7'000'000}});
  CHECK(amount("9KiB") == Amount{Bytes{9 * 1024}});
  CHECK(amount("9Ki") == Amount{Bytes{9 * 1024}});
  CHECK(amount("9K") == Amount{Bytes{9 * 1024}});
  CHECK(amount("9KB") == Amount{Bytes{9000}});
  CHECK(amount("2TiB") == Amount{Bytes{2ULL << 40}});
  CHECK(amount("2Ti") == Amount{Bytes{2ULL << 40}});
  CHECK(amount("2T") == Amount{Bytes{2ULL << 40}});
  CHECK(amount("2TB") == Amount{Bytes{2'000'000'000'000}});
  CHECK(amount("1B") == Amount{1_B});
  CHECK(amount("0B") == Amount{0_B});
  CHECK(amount("0GiB") == Amount{0_B});
  CHECK(amount("1.5GiB") == Amount{1536_MiB});
  CHECK(amount("0.1GB") == Amount{Bytes{100'000'000}});
  CHECK(amount("007MiB") == Amount{7_MiB});
  CHECK(amount("1024TiB") == Amount{kMaxSize});
}

TEST_CASE("1/4, 0.25, 0.250 and 25% are one value") {
  const Amount quarter = Fraction{1, 4};
  for (const char* text : {"1/4", "0.25", "0.250", "25%", "25.0%", "2/8", "00.25"}) {
    INFO(text);
    CHECK(amount(text) == quarter);
  }
  for (const char* text : {"1.0", "100%", "1/1", "7/7"})
    CHECK(amount(text) == Amount{Fraction{1, 1}});
  CHECK(amount("15%") == Amount{Fraction{3, 20}});
  CHECK(amount("12.5%") == Amount{Fraction{1, 8}});
  CHECK(amount("1/3") == Amount{Fraction{1, 3}});
}

TEST_CASE("C8: what is not a size is refused with its text and its reason") {
  const Refusal refusals[] = {
      {"", "empty"},
      {"0", "bare integer"},
      {"10", "bare integer"},
      {"1073741824", "bare integer"},
      {"-1", "negative"},
      {"-1GiB", "negative"},
      {"-0.5", "negative"},
      {"1e3", "unit that is not known"},
      {"1e3B", "unit that is not known"},
      {"99999999999G", "more than 1 PiB"},
      {"1025TiB", "more than 1 PiB"},
      {"18446744073709551616B", "too many digits"},
      {"99999999999999999999999999GiB", "too many digits"},
      {"5O%", "unit that is not known"},
      {"5o%", "unit that is not known"},
      {"10gib", "GiB is one"},
      {"10gi", "Gi is one"},
      {"10mb", "MB is one"},
      {"10Gib", "GiB is one"},
      {"10 GiB", "space"},
      {" 10GiB", "space"},
      {"10GiB ", "space"},
      {"10GiBs", "unit that is not known"},
      {"10Gbit", "unit that is not known"},
      {"10P", "unit that is not known"},
      {"1,5GiB", "unit that is not known"},
      {"+1GiB", "no spelling"},
      {"0x10GiB", "unit that is not known"},
      {"GiB", "no spelling"},
      {"%", "no spelling"},
      {".5", "no spelling"},
      {"5.", "no spelling"},
      {"5.GiB", "no spelling"},
      {"1.2.3", "unit that is not known"},
      {"unlimited", "no spelling"},
      {"max", "no spelling"},
      {"inf", "no spelling"},
      {"nan", "no spelling"},
      {"auto", "no spelling"},
      {"0.5B", "whole number of bytes"},
      {"0.1GiB", "whole number of bytes"},
      {"0%", "fraction of zero"},
      {"0.0", "fraction of zero"},
      {"0/4", "fraction of zero"},
      {"101%", "above 1"},
      {"1.5", "above 1"},
      {"5/4", "above 1"},
      {"1/0", "divides by zero"},
      {"1/", "ratio"},
      {"1/4/2", "ratio"},
      {"1/2%", "ratio"},
      {"0.5/2", "ratio"},
      {"1/2.0", "ratio"},
      {"1/-4", "ratio"},
      {"50%%", "unit that is not known"},
      {"0.0000000000000001", "too many digits"},
      {"1/99999999999999999999", "too many digits"},
  };
  for (const Refusal& refusal : refusals) {
    check_refused(status_of(parse_amount(refusal.text)), refusal.text, refusal.reason);
  }
}

TEST_CASE("C8: a size with a newline behind it is refused, and the newline is not printed") {
  const Result<Amount> parsed = parse_amount("10GiB\n");
  REQUIRE_FALSE(parsed.ok());
  CHECK(parsed.error().message.find("\"10GiB\\x0a\" has a unit") == 0);
}

TEST_CASE("a size where a fraction is wanted is refused, and the other way round") {
  check_refused(status_of(parse_bytes("25%")), "25%", "only a size");
  check_refused(status_of(parse_fraction("4GiB")), "4GiB", "only a fraction");
  CHECK(parse_bytes("64MiB").value() == 64_MiB);
  CHECK(parse_fraction("50%").value() == Fraction{1, 2});
}

TEST_CASE("a TOML float is the fraction that was written, not the double nearest to it") {
  CHECK(parse_fraction(0.15).value() == Fraction{3, 20});
  CHECK(parse_fraction(0.1).value() == Fraction{1, 10});
  CHECK(parse_fraction(0.3).value() == Fraction{3, 10});
  CHECK(parse_fraction(1.0).value() == Fraction{1, 1});
  CHECK(parse_fraction(0.333333333).value() == Fraction{333333333, 1000000000});
}

TEST_CASE("F40: a float that is zero, NaN, infinite, negative or above 1 is refused") {
  check_refused(status_of(parse_fraction(std::nan(""))), "nan", "finite");
  check_refused(status_of(parse_fraction(std::numeric_limits<double>::infinity())), "inf", "finite");
  check_refused(status_of(parse_fraction(-std::numeric_limits<double>::infinity())), "-inf", "finite");
  check_refused(status_of(parse_fraction(0.0)), "0.0", "zero");
  check_refused(status_of(parse_fraction(-0.0)), "-0.0", "negative");
  check_refused(status_of(parse_fraction(-0.5)), "-0.5", "negative");
  check_refused(status_of(parse_fraction(1.5)), "1.5", "above 1");
  CHECK_FALSE(parse_fraction(1e300).ok());
  CHECK_FALSE(parse_fraction(5e-324).ok());
}

TEST_CASE("every share spelling gives its guarantee and its limit") {
  const Fraction half{1, 2};
  CHECK(parse_share("0.5-0.8").value() == Share{half, Fraction{4, 5}});
  CHECK(parse_share("0.5").value() == Share{half, half});
  CHECK(parse_share("0.5+").value() == Share{half, std::nullopt});
  CHECK(parse_share("1/4-1/2").value() == Share{Fraction{1, 4}, half});
  CHECK(parse_share("25%-50%").value() == Share{Fraction{1, 4}, half});
  CHECK(parse_share("25%-0.5").value() == Share{Fraction{1, 4}, half});
  CHECK(parse_share("25%+").value() == Share{Fraction{1, 4}, std::nullopt});
  CHECK(parse_share("0.5-0.5").value() == parse_share("0.5").value());
  CHECK(parse_share("0.5-1.0").value() == Share{half, Fraction{1, 1}});
}

TEST_CASE("what is not a share is refused with its text and its reason") {
  const Refusal refusals[] = {
      {"", "empty"},
      {"-0.5", "negative"},
      {"0.8-0.5", "limit below"},
      {"0.5-", "empty"},
      {"0.5-0.8-0.9", "unit that is not known"},
      {"0.5-0.8+", "both"},
      {"+", "empty"},
      {"0.5++", "unit that is not known"},
      {"0-0.5", "bare integer"},
      {"0%-50%", "zero"},
      {"4GiB", "holds a size"},
      {"4GiB-8GiB", "holds a size"},
      {"1", "bare integer"},
      {"0.5 - 0.8", "space"},
      {"50-80", "bare integer"},
      {"0.5-1.2", "above 1"},
      {"nan", "no spelling"},
  };
  for (const Refusal& refusal : refusals) {
    check_refused(status_of(parse_share(refusal.text)), refusal.text, refusal.reason);
  }
}

TEST_CASE("every duration spelling is read exactly") {
  CHECK(parse_duration("2s").value() == Duration{2000});
  CHECK(parse_duration("500ms").value() == Duration{500});
  CHECK(parse_duration("1m30s").value() == Duration{90'000});
  CHECK(parse_duration("1h").value() == Duration{3'600'000});
  CHECK(parse_duration("1h2m3s4ms").value() == Duration{3'723'004});
  CHECK(parse_duration("0s").value() == Duration{0});
  CHECK(parse_duration("720h").value() == Duration{2'592'000'000});
}

TEST_CASE("what is not a duration is refused with its text and its reason") {
  const Refusal refusals[] = {
      {"", "empty"},
      {"2", "bare integer"},
      {"-2s", "negative"},
      {"1.5s", "not a duration"},
      {"2 s", "not a duration"},
      {"2sec", "not a duration"},
      {"1s1m", "not a duration"},
      {"1s1s", "not a duration"},
      {"s", "not a duration"},
      {"1m30", "bare integer"},
      {"forever", "not a duration"},
      {"inf", "not a duration"},
      {"721h", "30 days"},
      {"720h1ms", "30 days"},
      {"999999999999999999999s", "30 days"},
      {"999999999999999999h", "30 days"},
      {"2S", "not a duration"},
      {"1d", "not a duration"},
  };
  for (const Refusal& refusal : refusals) {
    check_refused(status_of(parse_duration(refusal.text)), refusal.text, refusal.reason);
  }
}

TEST_CASE("exact printing reads well") {
  CHECK(spell(Bytes{584ULL * 32 << 20}) == "18688MiB");
  CHECK(spell(4_GiB) == "4GiB");
  CHECK(spell(0_B) == "0B");
  CHECK(spell(1000_B) == "1000B");
  CHECK(spell(Fraction{1, 4}) == "0.25");
  CHECK(spell(Fraction{1, 3}) == "1/3");
  CHECK(spell(Fraction{1, 1}) == "1.0");
  CHECK(spell(Share{Fraction{1, 2}, Fraction{4, 5}}) == "0.5-0.8");
  CHECK(spell(Share{Fraction{1, 2}, std::nullopt}) == "0.5+");
  CHECK(spell(Share{Fraction{1, 2}, Fraction{1, 2}}) == "0.5");
  CHECK(spell(Duration{90'000}) == "1m30s");
  CHECK(spell(Duration{0}) == "0s");
}
