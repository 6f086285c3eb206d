// What the config tests share: a fixed user database, seeds that are printed, the device of the examples.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <string>

#include "config/config.hpp"
#include "config/load.hpp"
#include "config/user_rule.hpp"
#include "tests/support/catch.hpp"

namespace apportion::testing {

inline Names test_names() {
  const auto in = [](const char* known, std::uint32_t id) {
    return [known, id](const std::string& name) -> std::optional<std::uint32_t> {
      if (name == known) return id;
      return std::nullopt;
    };
  };
  return {in("alice", 1001), in("ml", 2001)};
}

// APPORTION_TEST_SEED repeats a run; the seed is printed in any case.
inline std::mt19937_64 seeded(const char* test) {
  const char* wanted = std::getenv("APPORTION_TEST_SEED");
  const std::uint64_t seed = wanted != nullptr ? std::strtoull(wanted, nullptr, 10) : std::random_device{}();
  std::fprintf(stderr, "%s: seed %llu\n", test, static_cast<unsigned long long>(seed));
  return std::mt19937_64{seed};
}

inline std::uint64_t pick(std::mt19937_64& random, std::uint64_t least, std::uint64_t most) {
  return std::uniform_int_distribution<std::uint64_t>{least, most}(random);
}

inline DeviceFacts device_of(Bytes total) {
  DeviceFacts device;
  device.total = total;
  device.granularity = 2_MiB;
  return device;
}

inline Config parsed(const std::string& text) {
  Result<Config> config = parse_config(text, "apportion.toml", test_names());
  if (!config) FAIL(config.error().message);
  return *config;
}

inline std::string error_of(const std::string& text) {
  const Result<Config> config = parse_config(text, "apportion.toml", test_names());
  return config ? "no error" : config.error().message;
}

inline std::string source_path(const std::string& relative) {
  return std::string{APPORTION_SOURCE_DIR} + "/" + relative;
}

inline std::string file_text(const std::string& path) {
  std::ifstream file{path};
  REQUIRE(file.good());
  return {std::istreambuf_iterator<char>{file}, std::istreambuf_iterator<char>{}};
}

}  // namespace apportion::testing
