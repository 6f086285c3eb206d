// tests/support/bench.hpp.
#include "tests/support/bench.hpp"

#include <filesystem>

#include "tests/support/catch.hpp"
#include "tests/support/run_program.hpp"

namespace apportion::testing {
namespace {

cudasim::FolderOptions four_gib() {
  cudasim::FolderOptions options;
  options.device_bytes = {(4_GiB).value};
  return options;
}

}  // namespace

bool one_line(const std::string& text) {
  return !text.empty() && text.find('\n') == text.size() - 1;
}

void expect_refused(const Launch& launch, const std::vector<std::string>& words) {
  const Refused refused = run_refused(launch);
  INFO(refused.errors);
  CHECK(refused.status != 0);
  CHECK(refused.status < 128);
  CHECK(refused.output.empty());
  CHECK(one_line(refused.errors));
  for (const std::string& word : words) {
    INFO(word);
    CHECK(refused.errors.find(word) != std::string::npos);
  }
}

Bench::Bench() : device(four_gib()) {}

Launch Bench::launch(const std::string& config) const {
  Launch launch;
  launch.command = {built("broker/apportiond"), "--config", scratch.write("apportion.toml", config)};
  launch.variables = {{"APPORTION_SOCKET", scratch.path() + "/broker.sock"},
                      {"CUDASIM_DIR", device.path()},
                      {"CUDASIM_FORCE", "1"},
                      {"APPORTION_LOG", "error"}};
  return launch;
}

void Bench::expect_untouched() const {
  CHECK(device->census().allocations.empty());
  CHECK_FALSE(std::filesystem::exists(scratch.path() + "/broker.sock"));
}

}  // namespace apportion::testing
