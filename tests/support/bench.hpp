// A simulated device with no broker on it, and programs that must refuse to start there.
#pragma once

#include <string>
#include <vector>

#include "cudasim/control.hpp"
#include "tests/support/process.hpp"
#include "tests/support/test_broker.hpp"

namespace apportion::testing {

// One line, and its end.
[[nodiscard]] bool one_line(const std::string& text);

// Ends with an error status, nothing on standard output, and on standard error one line that has all of
// `words`.
void expect_refused(const Launch& launch, const std::vector<std::string>& words);

struct Bench {
  cudasim::TemporaryFolder device;  // 4 GiB
  Scratch scratch;

  Bench();
  // An apportiond of a config with this text.
  [[nodiscard]] Launch launch(const std::string& config) const;
  // No allocation on the device, no socket.
  void expect_untouched() const;
};

}  // namespace apportion::testing
