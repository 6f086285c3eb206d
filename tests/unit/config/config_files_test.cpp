// Every file of tests/data/config/ and examples/config/. What a file must give stands in its own first lines:
//   # error: LINE: MESSAGE      what config_errors says, all of it, in order
//   # device: 80GiB             what load() is tried on (80GiB where the line is missing)
//   # refused: LINE: MESSAGE    what load() refuses, and `# warning: LINE: MESSAGE` what it warns of; line 0:
//   the file
#include <algorithm>
#include <filesystem>
#include <sstream>

#include "tests/unit/config/support.hpp"

using namespace apportion;
using namespace apportion::testing;

namespace {

struct Expected {
  Bytes device = 80_GiB;
  std::vector<std::string> errors;
  std::vector<std::string> refusals;
  std::vector<std::string> warnings;
};

Expected expected_of(const std::string& text, const std::string& file) {
  Expected expected;
  std::istringstream lines{text};
  for (std::string line; std::getline(lines, line) && line.rfind("# ", 0) == 0;) {
    const std::size_t colon = line.find(": ");
    if (colon == std::string::npos) continue;
    const std::string what = line.substr(2, colon - 2);
    const std::string rest = line.substr(colon + 2);
    const std::string message = rest.rfind("0: ", 0) == 0 ? file + rest.substr(1) : file + ":" + rest;
    if (what == "device") expected.device = parse_bytes(rest).value();
    if (what == "error") expected.errors.push_back(message);
    if (what == "refused") expected.refusals.push_back(message);
    if (what == "warning") expected.warnings.push_back(message);
  }
  return expected;
}

std::vector<std::filesystem::path> files_of(const std::string& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator{source_path(folder)}) {
    if (entry.path().extension() == ".toml") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  REQUIRE(!files.empty());
  return files;
}

}  // namespace

TEST_CASE("every config of tests/data/config gives exactly the errors, refusals and warnings it names") {
  for (const std::filesystem::path& path : files_of("tests/data/config")) {
    const std::string file = path.filename().string();
    const std::string text = file_text(path.string());
    const Expected expected = expected_of(text, file);
    INFO(file);
    CHECK(config_errors(text, file, test_names()) == expected.errors);
    const Result<Config> config = parse_config(text, file, test_names());
    REQUIRE(config.ok() == expected.errors.empty());
    // A file that is meant to be bad must say how.
    if (file.rfind("bad-", 0) == 0) REQUIRE(!(expected.errors.empty() && expected.refusals.empty()));
    if (!config) {
      CHECK(config.error().message == expected.errors.front());
      continue;
    }
    const LoadReport report = load(*config, device_of(expected.device));
    CHECK(report.refusals == expected.refusals);
    CHECK(report.warnings == expected.warnings);
  }
}

TEST_CASE(
    "every config of examples/config parses with the names of any system, and loads on a device it is made "
    "for") {
  const Names everybody{[](const std::string&) { return std::optional<std::uint32_t>{7}; },
                        [](const std::string&) { return std::optional<std::uint32_t>{8}; }};
  for (const std::filesystem::path& path : files_of("examples/config")) {
    INFO(path.string());
    const Result<Config> config = read_config(path.string(), everybody);
    if (!config) FAIL(config.error().message);
    for (const Bytes device : {24_GiB, 80_GiB}) {
      const LoadReport report = load(*config, device_of(device));
      CHECK(report.refusals.empty());
      CHECK(report.warnings.empty());
    }
  }
}

TEST_CASE("the race config gives four racers 18.25 GiB each of the simulated 80 GiB") {
  const Result<Config> config = read_config(source_path("examples/config/race.toml"), test_names());
  REQUIRE(config.ok());
  CHECK(config->broker.device.kind == DeviceName::Kind::simulated);
  const LoadReport report = load(*config, device_of(config->broker.device.simulated_size));
  REQUIRE(report.ok());
  REQUIRE(report.jobs.size() == 4);
  for (const JobQuota& job : report.jobs) {
    CHECK(to_text(job.told) == "18.25 GiB");
    CHECK(job.limit == job.guarantee);
  }
}
