#include <algorithm>

#include "config/sizes.hpp"
#include "shm/device_name.hpp"
#include "tests/unit/config/support.hpp"

using namespace apportion;
using namespace apportion::testing;

namespace {

constexpr int kRounds = 20'000;

Fraction random_fraction(std::mt19937_64& random) {
  constexpr std::uint64_t kScales[] = {4, 10, 100, 1000, 1'000'000, 999'999'999'999'999'999};
  const std::uint64_t denominator = pick(random, 1, kScales[pick(random, 0, 5)]);
  return make_fraction(pick(random, 1, denominator), denominator);
}

}  // namespace

TEST_CASE("property: every size, fraction, share and duration reads back from its printed form") {
  std::mt19937_64 random = seeded("print and parse");
  for (int i = 0; i < kRounds; ++i) {
    const Bytes bytes{pick(random, 0, kMaxSize.value) >> pick(random, 0, 50)};
    REQUIRE(parse_bytes(spell(bytes)).value() == bytes);
    const Fraction fraction = random_fraction(random);
    INFO(spell(fraction));
    REQUIRE(parse_fraction(spell(fraction)).value() == fraction);
    const Fraction other = random_fraction(random);
    const Share share{std::min(fraction, other), std::max(fraction, other)};
    REQUIRE(parse_share(spell(share)).value() == share);
    const Share growing{fraction, std::nullopt};
    REQUIRE(parse_share(spell(growing)).value() == growing);
    const Duration duration{
        static_cast<Duration::rep>(pick(random, 0, 2'592'000'000) >> pick(random, 0, 31))};
    REQUIRE(parse_duration(spell(duration)).value() == duration);
  }
}

TEST_CASE("property: a float of up to 15 digits is the fraction of those digits") {
  std::mt19937_64 random = seeded("floats");
  for (int i = 0; i < kRounds; ++i) {
    std::uint64_t scale = 10;
    for (std::uint64_t zeros = pick(random, 0, 14); zeros > 0; --zeros)
      scale *= 10;
    const std::uint64_t digits = pick(random, 1, scale);
    const double number = static_cast<double>(digits) / static_cast<double>(scale);
    INFO(digits << "/" << scale);
    REQUIRE(parse_fraction(number).value() == make_fraction(digits, scale));
  }
}

TEST_CASE("property: a larger fraction never gives less, and parts of a whole never give more than it") {
  std::mt19937_64 random = seeded("rounding");
  for (int i = 0; i < kRounds; ++i) {
    const Fraction a = random_fraction(random);
    const Fraction b = random_fraction(random);
    const std::uint64_t whole = pick(random, 0, kMaxSize.value) >> pick(random, 0, 50);
    REQUIRE(a.of(whole) <= whole);
    REQUIRE((a <= b ? a.of(whole) <= b.of(whole) : a.of(whole) >= b.of(whole)));
    // n times 1/n, each rounded down.
    const std::uint64_t parts = pick(random, 1, 64);
    REQUIRE(make_fraction(1, parts).of(whole) * parts <= whole);
  }
}

TEST_CASE("property: no text makes the parsers crash, and a refusal is one printable line") {
  std::mt19937_64 random = seeded("garbage");
  constexpr std::string_view kLetters = "0123456789.%/+-GMKTBibhms \n\x01\xff";
  for (int i = 0; i < kRounds; ++i) {
    std::string text;
    for (std::uint64_t length = pick(random, 0, 12); length > 0; --length) {
      text += kLetters[pick(random, 0, kLetters.size() - 1)];
    }
    const auto one_line = [&](const auto& result) {
      if (result) return;
      const std::string& message = result.error().message;
      REQUIRE(std::all_of(message.begin(), message.end(), [](char c) { return c >= 0x20 && c < 0x7f; }));
    };
    one_line(parse_amount(text));
    one_line(parse_bytes(text));
    one_line(parse_fraction(text));
    one_line(parse_share(text));
    one_line(parse_duration(text));
  }
}

TEST_CASE("property: a simulated device has the size that its text has in any other key") {
  std::mt19937_64 random = seeded("simulated sizes");
  constexpr std::string_view kLetters = "0123456789.GMKTBi";
  constexpr std::string_view kUnits[] = {"M", "Mi", "MiB", "MB", "G", "Gi", "GiB", "GB", "T", "Ti", "TiB"};
  int read = 0;
  for (int i = 0; i < kRounds; ++i) {
    std::string text = std::to_string(pick(random, 0, 200));
    if (pick(random, 0, 3) == 0) text += kLetters[pick(random, 0, kLetters.size() - 1)];
    text += kUnits[pick(random, 0, std::size(kUnits) - 1)];
    const Result<DeviceName> device = parse_device("sim:" + text);
    if (!device) continue;
    ++read;
    INFO(text);
    REQUIRE(parse_bytes(text).value() == device->simulated_size);
  }
  CHECK(read > kRounds / 20);
}
