// The race as `./dev demo` shows it, through the command line.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cudasim/scratch_folder.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/run_program.hpp"
#include "tests/support/test_broker.hpp"

using namespace apportion;
using namespace apportion::testing;
using nlohmann::json;

namespace {

json demo(std::vector<std::string> more) {
  std::vector<std::string> command{built("cli/apportion"), "demo", "--json"};
  command.insert(command.end(), more.begin(), more.end());
  const Ran ran =
      run_program(command, {{"CUDASIM_DIR", ""}, {"CUDASIM_FORCE", ""}, {"APPORTION_SOCKET", ""}});
  INFO(ran.output);
  REQUIRE(ran.status == 0);
  REQUIRE(ran.output.find('\n') == ran.output.size() - 1);  // one line and nothing else
  return json::parse(ran.output);
}

std::size_t demo_folders() {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm"))
    count += entry.path().filename().string().rfind("apportion-demo-", 0) == 0 ? 1 : 0;
  return count;
}

}  // namespace

TEST_CASE(
    "the demo: on the bare device start order decides, through the broker nobody loses and nothing "
    "overlaps") {
  const json race = demo({"--device", "sim:80GiB", "--seed", "3"});
  REQUIRE(race["bare"].size() == 4);
  REQUIRE(race["broker"].size() == 4);
  const auto winners = std::count_if(race["bare"].begin(), race["bare"].end(),
                                     [](const json& each) { return each["ok"] == true; });
  CHECK(winners < 4);
  CHECK(std::count_if(race["bare"].begin(), race["bare"].end(),
                      [](const json& each) { return each["got_bytes"] == (60_GiB).value; }) == 1);
  for (const json& each : race["broker"]) {
    CHECK(each["ok"] == true);
    CHECK(each["told_bytes"] == 584 * (32_MiB).value);
    CHECK(each["guarantee_bytes"] == each["told_bytes"]);
    CHECK(each["limit_bytes"] == each["told_bytes"]);
    CHECK(each["got_bytes"] == each["wanted_bytes"]);
    CHECK(each["wanted_bytes"] == 438 * (32_MiB).value);  // .75 of it: 13.69 GiB
  }
  CHECK(race["device_bytes"] == (80_GiB).value);
  CHECK(race["pool_bytes"] == 2339 * (32_MiB).value);
  CHECK(race["orders"] == 1);
  CHECK(race["distinct_results"] == 1);
  CHECK(race["overlap_bytes"] == 0);
}

TEST_CASE("the demo's zero of overlapping bytes is measured: broken on purpose it is not zero") {
  const json race = demo({"--device", "sim:80GiB", "--break", "overlap"});
  CHECK(race["overlap_bytes"].get<std::uint64_t>() >= (32_MiB).value);
}

TEST_CASE("R1: the demo runs all 24 orders, and all results are one") {
  const json race = demo({"--device", "sim:80GiB", "--orders", "all"});
  CHECK(race["orders"] == 24);
  CHECK(race["distinct_results"] == 1);
  CHECK(race["overlap_bytes"] == 0);
}

TEST_CASE("bad input: the demo refuses what it cannot do with one line") {
  const std::size_t before = demo_folders();
  for (const std::vector<std::string>& more : {std::vector<std::string>{"--device", "sim:1MiB"},
                                               {"--device", "nonsense"},
                                               {"--clients", "0"},
                                               {"--break", "nothing"}}) {
    Launch launch;
    launch.command = {built("cli/apportion"), "demo", "--json"};
    launch.command.insert(launch.command.end(), more.begin(), more.end());
    const Refused refused = run_refused(launch);
    INFO(more[0] << " " << more[1] << ": " << refused.errors);
    CHECK(refused.status != 0);
    CHECK(refused.status < 128);
    CHECK(refused.output.empty());
    CHECK(refused.errors.find(more[1]) != std::string::npos);
    CHECK(refused.errors.find('\n') == refused.errors.size() - 1);
  }
  CHECK(demo_folders() == before);
}

TEST_CASE("bad input: apportion check says what each job would get, or why not") {
  const Scratch scratch;
  const std::string good =
      scratch.write("good.toml", "[broker]\ndevice = \"sim:8GiB\"\n[jobs.a]\nshare = \"0.5\"\n");
  const std::string bad = scratch.write(
      "bad.toml", "[broker]\ndevice = \"sim:8GiB\"\n[jobs.a]\nshare = \"0.6\"\n[jobs.b]\nshare = \"0.6\"\n");
  Launch launch;
  const cudasim::ScratchFolder shm;
  const std::string device = shm.path() + "/device";
  launch.variables = {{"CUDASIM_DIR", device}};
  launch.command = {built("cli/apportion"), "check", good};
  const Refused fine = run_refused(launch);
  INFO(fine.output << fine.errors);
  CHECK(fine.status == 0);
  CHECK(fine.output.find("pool") != std::string::npos);
  CHECK(fine.output.find("helper context") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(device));  // made for the question, and gone with the answer
  launch.command.back() = bad;
  const Refused refused = run_refused(launch);
  INFO(refused.output << refused.errors);
  CHECK(refused.status == 1);
  CHECK(refused.errors.find("bad.toml:") != std::string::npos);
  CHECK(refused.errors.find('\n') == refused.errors.size() - 1);
  launch.command.back() = scratch.path() + "/none.toml";
  const Refused none = run_refused(launch);
  CHECK(none.status == 1);
  CHECK(none.errors.find("none.toml") != std::string::npos);
}
