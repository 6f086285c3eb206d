// An open question about real drivers: what we expect, and what this driver does.
//
// A question never fails: it records. It is a test case like any other, so that one main runs both; its name
// begins with the number it has in the contract's last section.
#pragma once

#include <string>
#include <vector>

#include "tests/conformance/answer.hpp"
#include "tests/conformance/driver.hpp"
#include "tests/conformance/peer.hpp"
#include "tests/conformance/scene.hpp"
#include "tests/support/catch.hpp"

// Ends a question that only a device can answer.
#define DEVICE_ONLY(reason) \
  if (::apportion::conformance::on_simulator()) APPORTION_SKIP("not on the simulator: " reason)

namespace apportion::conformance {

// One line each on standard output; `expected` first.
void expected(const std::string& text);
void seen(const std::string& text);

// "name: OK", for lists of answers.
std::string told(const std::string& call, Answer answer);
std::string joined(const std::vector<std::string>& parts);
// "64 MiB", rounded.
std::string mib(std::size_t bytes);

// Milliseconds since it was made.
class Stopwatch {
 public:
  Stopwatch() : start_(std::chrono::steady_clock::now()) {}
  [[nodiscard]] double ms() const {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_;
};
std::string ms(double value);

}  // namespace apportion::conformance
