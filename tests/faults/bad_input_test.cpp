// Input that makes no sense: one line that says what, where and what to do, and nothing has changed.
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/bench.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/run_program.hpp"
#include "tests/support/test_client.hpp"

using namespace apportion;
using namespace apportion::testing;

namespace {

constexpr uid_t kStranger = 4242;

BrokerOptions one_job() {
  BrokerOptions options;
  options.device = 4_GiB;
  options.jobs = "[jobs.a]\nshare = \"0.5\"\n";
  return options;
}

const std::string kGoodBroker = "[broker]\ndevice = \"sim:4096MiB\"\n";

}  // namespace

TEST_CASE(
    "F40: a config that promises too much or makes no sense is refused at the start, with file and line") {
  Bench bench;
  struct Bad {
    const char* text;
    std::vector<std::string> words;
  };
  const std::vector<Bad> bad = {
      {"[jobs.a]\nshare = \"0.6\"\n[jobs.b]\nshare = \"0.6\"\n", {"apportion.toml:", "guarantee"}},
      {"[jobs.a]\nguarantee = \"5GiB\"\n", {"apportion.toml:4"}},
      {"[jobs.a]\nshare = \"0\"\n", {"apportion.toml:4", "\"0\""}},
      {"[jobs.a]\nshare = 0.0\n", {"apportion.toml:4", "0"}},
      {"[jobs.a]\nshare = nan\n", {"apportion.toml:4", "nan"}},
      {"[jobs.a]\nshare = \"0.5\"\n[jobs.a]\nshare = \"0.2\"\n", {"apportion.toml:5", "a"}},
      {"[jobs.a]\nshare = \"0.5\"\nshares = \"0.2\"\n", {"apportion.toml:5", "shares"}},
      {"[jobs.a]\nguarantee = \"2GiB\"\nlimit = \"1GiB\"\n", {"apportion.toml:"}},
      {"[jobs.a]\nshare = \"5O%\"\n", {"apportion.toml:4", "5O%"}},
      {"[jobs.a\n", {"apportion.toml:3"}},
      {"[jobs.\"a b\"]\nshare = \"0.5\"\n", {"apportion.toml:3", "a b"}},
      {"[jobs.a]\nshare = \"0.5\"\nusers = [\"nobody-of-this-name\"]\n",
       {"apportion.toml:5", "nobody-of-this-name"}},
      {"[jobs.a]\nshare = \"0.5\"\nusers = [99999999999]\n", {"apportion.toml:5", "99999999999"}},
  };
  for (const Bad& each : bad) {
    INFO(each.text);
    expect_refused(bench.launch(kGoodBroker + each.text), each.words);
    bench.expect_untouched();
  }
  for (const auto& [line, word] :
       std::vector<std::pair<std::string, std::string>>{{"pool = \"5GiB\"", "apportion.toml:3"},
                                                        {"pool = \"0\"", "\"0\""},
                                                        {"pool = 12", "12"},
                                                        {"chunk = \"3MiB\"", "3MiB"},
                                                        {"chunk = \"1KiB\"", "1KiB"},
                                                        {"overhead = \"-1\"", "-1"}}) {
    INFO(line);
    expect_refused(bench.launch(kGoodBroker + line + "\n[jobs.a]\nshare = \"0.5\"\n"),
                   {"apportion.toml:3", word});
    bench.expect_untouched();
  }
}

TEST_CASE(
    "C8: a size that cannot be read is refused with its text by the broker, and never taken for another") {
  Bench bench;
  for (const std::string size :
       {"", "-1", "0", "1e3", "10", "99999999999G", "5O%", "10Gb", "10 GiB GiB", "0x10", "1..2GiB"}) {
    INFO(size);
    expect_refused(bench.launch(kGoodBroker + "[jobs.a]\nlimit = \"" + size + "\"\n"),
                   {"apportion.toml:4", "\"" + size + "\""});
    bench.expect_untouched();
  }
}

TEST_CASE("C8: sizes that mean the same give the same quota") {
  for (const std::string size : {"1Gi", "1GiB", "1G", "1024MiB", "1048576KiB"}) {
    BrokerOptions options;
    options.device = 4_GiB;
    options.jobs = "[jobs.a]\nlimit = \"" + size + "\"\n";
    TestBroker broker(options);
    CHECK(broker.job("a").job.limit == (1_GiB).value);
  }
}

TEST_CASE("C24: a limit above the device is cut to the pool, and the broker says so at its start") {
  BrokerOptions options;
  options.device = 8_GiB;
  options.jobs = "[jobs.a]\nlimit = \"100GiB\"\n";
  TestBroker broker(options);
  CHECK(broker.job("a").job.limit == broker.pool().value);
  const std::string log = broker.log();
  INFO(log);
  const auto warning = log.find("level=warning who=broker event=config");
  REQUIRE(warning != std::string::npos);
  const std::string line = log.substr(warning, log.find('\n', warning) - warning);
  CHECK(line.find("apportion.toml:") != std::string::npos);
  CHECK(line.find("100") != std::string::npos);
  CHECK(line.find("pool") != std::string::npos);
}

TEST_CASE("bad input: a device that is not there, a config that is not there, a device that is full") {
  Bench bench;
  const std::string job = "[jobs.a]\nshare = \"0.5\"\n";
  SECTION("no such device") {
    Launch launch = bench.launch("[broker]\ndevice = \"7\"\n" + job);
    launch.variables["APPORTION_DRIVER"] = built("cudasim/libcuda.so.1");
    expect_refused(launch, {"apportion.toml:2", "7"});
  }
  SECTION("nonsense for a device") {
    expect_refused(bench.launch("[broker]\ndevice = \"sim:lots\"\n" + job), {"apportion.toml:2", "sim:lots"});
  }
  SECTION("a size that differs from the simulated device's own") {
    Launch launch = bench.launch("[broker]\ndevice = \"sim:80GiB\"\n" + job);
    const Refused refused = run_refused(launch);
    INFO(refused.errors);
    CHECK(refused.status != 0);
    CHECK(one_line(refused.errors));
  }
  SECTION("no such config") {
    Launch launch = bench.launch(kGoodBroker + job);
    launch.command[2] = bench.scratch.path() + "/none.toml";
    expect_refused(launch, {bench.scratch.path() + "/none.toml"});
  }
  SECTION("no config at all: every path tried is listed") {
    Launch launch = bench.launch(kGoodBroker + job);
    launch.command.resize(1);
    launch.variables["APPORTION_CONFIG"] = "";
    launch.variables["XDG_CONFIG_HOME"] = bench.scratch.path() + "/xdg";
    expect_refused(launch,
                   {bench.scratch.path() + "/xdg/apportion/apportion.toml", "/etc/apportion/apportion.toml"});
  }
  SECTION("a config that may not be read") {
    if (!can_change_uid()) APPORTION_SKIP("without root no process of another uid can be started");
    Launch launch = bench.launch(kGoodBroker + job);
    REQUIRE(::chmod(launch.command[2].c_str(), 0600) == 0);
    launch.uid = kStranger;
    expect_refused(launch, {launch.command[2], "ermission denied"});
  }
  SECTION("a user with no place for a socket") {
    if (!can_change_uid()) APPORTION_SKIP("without root no process of another uid can be started");
    Launch launch = bench.launch(kGoodBroker + job);
    launch.variables["APPORTION_SOCKET"] = "";
    launch.variables["XDG_RUNTIME_DIR"] = "";
    launch.uid = kStranger;
    expect_refused(launch, {"XDG_RUNTIME_DIR is not set", "APPORTION_SOCKET"});
  }
  SECTION("too few open files for the pool's chunks") {
    Launch launch = bench.launch(kGoodBroker + "chunk = \"2MiB\"\n" + job);
    launch.open_files = 300;
    expect_refused(launch, {"apportion.toml:3", "open files", "raise it"});
  }
  SECTION("unknown arguments") {
    Launch launch = bench.launch(kGoodBroker + job);
    launch.command.emplace_back("--no-such-flag");
    const Refused refused = run_refused(launch);
    INFO(refused.errors);
    CHECK(refused.status != 0);
    CHECK(refused.errors.find("--no-such-flag") != std::string::npos);
  }
  bench.expect_untouched();
}

TEST_CASE(
    "bad input: a folder too small for the simulated device is refused with what it needs and what it has") {
  const std::vector<std::string> apart{"/usr/bin/unshare", "--mount"};
  if (run_program({apart[0], apart[1], "true"}).status != 0)
    APPORTION_SKIP("without CAP_SYS_ADMIN no small file system can be mounted");
  Bench bench;
  Launch launch = bench.launch(kGoodBroker + "[jobs.a]\nshare = \"0.5\"\n");
  const std::string small = bench.scratch.path() + "/small";
  std::vector<std::string> command{apart[0],
                                   apart[1],
                                   "/bin/sh",
                                   "-c",
                                   "mkdir \"$0\" && mount -t tmpfs -o size=4m none \"$0\" && exec \"$@\"",
                                   small};
  command.insert(command.end(), launch.command.begin(), launch.command.end());
  launch.command = command;
  launch.variables["CUDASIM_DIR"] = small + "/device";
  expect_refused(launch, {"needs 18 MiB in " + small, "4 MiB free", "--shm-size", "CUDASIM_DIR"});
  bench.expect_untouched();
}

TEST_CASE(
    "bad input: a pool for which the device has no room ends the start with one line, and nothing stays "
    "taken") {
  Bench bench;
  bench.device->set_stranger_bytes(0, (3584_MiB).value);
  expect_refused(
      bench.launch(kGoodBroker + "pool = \"1GiB\"\noverhead = \"64MiB\"\n[jobs.a]\nshare = \"0.5\"\n"),
      {"cannot make the pool of 1 GiB", "choose a smaller pool"});
  CHECK(bench.device->wait_no_references(20'000));
  bench.expect_untouched();
}

TEST_CASE("bad input: a client of no broker, no job or no right is told what is wrong, and takes nothing") {
  BrokerOptions options = one_job();
  options.jobs += "[jobs.private]\nshare = \"0.1\"\nusers = [\"root\"]\n";
  TestBroker broker(options);
  const TestBroker::Footprint before = broker.footprint();
  SECTION("no such job") {
    TestClient client(broker);
    const TestClient::Answer answer = client.ask("attach trainer");
    CHECK(answer.code == "APPORTION_NOT_FOUND");
    CHECK(answer.text == "no job \"trainer\" in the config; its jobs: a, private");
  }
  SECTION("no job named") {
    TestClient client(broker);
    const TestClient::Answer answer = client.ask("attach");
    CHECK(answer.code == "APPORTION_NOT_FOUND");
    CHECK(answer.text.find("[jobs.default]") != std::string::npos);
  }
  SECTION("a job of others") {
    if (!can_change_uid()) APPORTION_SKIP("without root no process of another uid can be started");
    TestClient client(broker, {.uid = kStranger});
    const TestClient::Answer answer = client.ask("attach private");
    CHECK(answer.code == "APPORTION_DENIED");
    CHECK(answer.text.find("uid 4242 may not join job \"private\"") != std::string::npos);
    client.attach("a");
    client.alloc(32_MiB);
    client.detach();
  }
  SECTION("a name that is too long") {
    TestClient client(broker);
    CHECK(client.ask("attach " + std::string(64, 'x')).code == "APPORTION_INVALID");
  }
  SECTION("no broker: every path tried, and how to start one") {
    const std::string none = broker.scratch().path() + "/none.sock";
    TestClient client(broker, {.variables = {{"APPORTION_SOCKET", none}}});
    const TestClient::Answer answer = client.ask("attach a");
    CHECK(answer.code == "APPORTION_NOT_FOUND");
    CHECK(answer.text.find(none + " (not there)") != std::string::npos);
    CHECK(answer.text.find("apportiond --config") != std::string::npos);
    TestClient lost(broker,
                    {.variables = {{"APPORTION_SOCKET", ""}, {"XDG_RUNTIME_DIR", broker.scratch().path()}}});
    const TestClient::Answer nowhere = lost.ask("attach a");
    CHECK(nowhere.code == "APPORTION_NOT_FOUND");
    CHECK(nowhere.text.find(broker.scratch().path() + "/apportion/") != std::string::npos);
    CHECK(nowhere.text.find("/run/apportion/") != std::string::npos);
  }
  SECTION("sizes that make no sense") {
    TestClient client(broker);
    client.attach("a");
    CHECK(client.ask("alloc 0").code == "APPORTION_INVALID");
    for (const std::string bytes : {"18446744073709551615", "9223372036854775808", "1099511627776"}) {
      for (const std::string how : {"alloc ", "exact "}) {
        const TestClient::Answer answer = client.ask(how + bytes);
        INFO(how << bytes << ": " << answer.code << " " << answer.text);
        CHECK((answer.code == "APPORTION_QUOTA" || answer.code == "APPORTION_OUT_OF_MEMORY" ||
               answer.code == "APPORTION_INVALID"));
        CHECK_FALSE(answer.text.empty());
      }
    }
    CHECK(client.ask("free 4096").code == "APPORTION_INVALID");
    CHECK(broker.job("a").job.charged == 0);
    client.free(client.alloc(64_MiB));
    client.detach();
  }
  broker.wait_idle();
  broker.wait_footprint(before);
}
