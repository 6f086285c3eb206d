// One include for Catch2 2.13 (Debian 12) and 3.x (Debian 13), and a SKIP that both have.
#pragma once

#if __has_include(<catch2/catch_test_macros.hpp>)
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_all.hpp>
#define APPORTION_SKIP(reason) SKIP(reason)
#else
#include <catch2/catch.hpp>

#include <cstdio>
#include <cstdlib>
#include <string>

// Catch2 2.13 cannot skip: the test returns, and tests/run.py reads what was skipped from the file it named.
namespace apportion::testing {
inline void note_skip(const std::string& test, const std::string& reason) {
  std::fprintf(stderr, "skipped: %s: %s\n", test.c_str(), reason.c_str());
  const char* path = std::getenv("APPORTION_SKIP_FILE");
  if (path == nullptr) return;
  if (std::FILE* file = std::fopen(path, "a")) {
    std::fprintf(file, "%s\t%s\n", test.c_str(), reason.c_str());
    std::fclose(file);
  }
}
}  // namespace apportion::testing
#define APPORTION_SKIP(reason)                                                               \
  do {                                                                                       \
    ::apportion::testing::note_skip(Catch::getResultCapture().getCurrentTestName(), reason); \
    SUCCEED("skipped");                                                                      \
    return;                                                                                  \
  } while (false)
#endif
