// Opening devices: each case in a process of its own, over a folder of its own.
#include "gpu/device.hpp"

#include <sys/mount.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "tests/support/catch.hpp"
#include "tests/support/run_program.hpp"

using apportion::testing::built;
using apportion::testing::Ran;
using apportion::testing::run_program;

namespace {

class Folder {
 public:
  Folder() {
    char path[] = "/dev/shm/apportion-test-device-XXXXXX";
    REQUIRE(::mkdtemp(path) != nullptr);
    path_ = path;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string device() const { return path_ + "/device"; }

 private:
  std::string path_;
};

Ran open_device(const std::string& text, std::map<std::string, std::string> variables) {
  variables.try_emplace("CUDASIM_DEVICES", "");
  variables.try_emplace("APPORTION_DRIVER", "");
  return run_program({built("tests/unit/gpu/open_device"), text}, variables);
}

// A device that is not named sim: needs the simulated driver named, as a real one would be.
std::map<std::string, std::string> two_devices(const Folder& folder) {
  return {{"CUDASIM_DIR", folder.device()},
          {"CUDASIM_DEVICES", "1GiB,2GiB"},
          {"CUDASIM_FORCE", "1"},
          {"APPORTION_DRIVER", built("cudasim/libcuda.so.1")}};
}

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> all;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);)
    all.push_back(line);
  return all;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a simulated device needs no variables, and is the same one for every process") {
  const Folder folder;
  const Ran first = open_device("sim:80GiB", {{"CUDASIM_DIR", folder.device()}});
  INFO(first.output);
  REQUIRE(first.status == 0);
  CHECK(lines(first.output).at(0).starts_with("GPU-"));
  CHECK(lines(first.output).at(2) == "85899345920");
  CHECK(contains(lines(first.output).at(3), "/cudasim/libcuda.so.1"));
  const Ran second = open_device("sim:80GiB", {{"CUDASIM_DIR", folder.device()}});
  CHECK(second.output == first.output);
}

TEST_CASE("one device is found by its index, its UUID and its PCI id") {
  const Folder folder;
  const auto variables = two_devices(folder);
  const Ran by_index = open_device("1", variables);
  INFO(by_index.output);
  REQUIRE(by_index.status == 0);
  const auto facts = lines(by_index.output);
  CHECK(facts.at(2) == "2147483648");
  CHECK(open_device(facts.at(0), variables).output == by_index.output);
  CHECK(open_device(facts.at(1), variables).output == by_index.output);
}

TEST_CASE("a missing device is refused with the list of those there are") {
  const Folder folder;
  const auto variables = two_devices(folder);
  for (const char* text : {"2", "GPU-00000000-0000-0000-0000-000000000000", "00ff:00:00.0"}) {
    const Ran ran = open_device(text, variables);
    INFO(ran.output);
    CHECK(ran.status == 1);
    CHECK(lines(ran.output).size() == 1);
    CHECK(contains(ran.output, std::string("no device '") + text + "'"));
    CHECK(contains(ran.output, "0: "));
    CHECK(contains(ran.output, "1 GiB"));
    CHECK(contains(ran.output, "1: "));
    CHECK(contains(ran.output, "2 GiB"));
  }
}

TEST_CASE("a simulated device of another size than the one there is refused") {
  const Folder folder;
  REQUIRE(open_device("sim:1GiB", {{"CUDASIM_DIR", folder.device()}}).status == 0);
  const Ran ran = open_device("sim:2GiB", {{"CUDASIM_DIR", folder.device()}});
  CHECK(ran.status == 1);
  CHECK(lines(ran.output).size() == 1);
  CHECK(contains(ran.output, folder.device()));
  CHECK(contains(ran.output, "1 GiB"));
}

TEST_CASE("a missing driver is refused with its path and what to do") {
  const Ran real = open_device("0", {{"APPORTION_DRIVER", "/nonexistent/libcuda.so.1"}});
  CHECK(real.status == 1);
  CHECK(lines(real.output).size() == 1);
  CHECK(contains(real.output, "/nonexistent/libcuda.so.1"));
  CHECK(contains(real.output, "APPORTION_DRIVER"));
  const Ran simulated = open_device("sim:1GiB", {{"APPORTION_DRIVER", "/nonexistent/libcuda.so.1"}});
  CHECK(simulated.status == 1);
  CHECK(contains(simulated.output, "no simulated driver found; tried /nonexistent/libcuda.so.1"));
}

TEST_CASE("a library that is no driver is refused") {
  const Ran ran = open_device("0", {{"APPORTION_DRIVER", "libm.so.6"}});
  CHECK(ran.status == 1);
  CHECK(lines(ran.output).size() == 1);
  CHECK(contains(ran.output, "libm.so.6"));
  CHECK(contains(ran.output, "not a CUDA driver"));
}

TEST_CASE("a folder of a simulated device is made on a tmpfs only, and no other with it") {
  const Folder folder;
  const std::string deep = folder.device() + "/a/b";
  const Ran missing = open_device("sim:1GiB", {{"CUDASIM_DIR", deep}});
  CHECK(missing.status == 1);
  CHECK(lines(missing.output).size() == 1);
  CHECK(contains(missing.output,
                 "there is no folder " + folder.device() + "/a for the simulated device's " + deep));
  CHECK_FALSE(std::filesystem::exists(folder.device()));
  const Ran root = open_device("sim:1GiB", {{"CUDASIM_DIR", "/nonexistent-device"}});
  CHECK(root.status == 1);
  CHECK(lines(root.output).size() == 1);
  CHECK(contains(root.output,
                 "/nonexistent-device does not exist, and / is no tmpfs; make it, or set CUDASIM_DIR"));
  CHECK_FALSE(std::filesystem::exists("/nonexistent-device"));
}

TEST_CASE("a file system too small for the simulated device is refused, with what it needs and has") {
  // /proc has no free blocks, for root and for everyone.
  const Ran ran = open_device("sim:80GiB", {{"CUDASIM_DIR", "/proc/apportion"}});
  CHECK(ran.status == 1);
  CHECK(lines(ran.output).size() == 1);
  CHECK(contains(ran.output, "needs 56 MiB in /proc, which has 0 B free"));
}
