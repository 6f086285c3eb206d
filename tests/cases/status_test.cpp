// What `apportion status --json` says of a situation that is known from outside, and that its rows add up.
#include <signal.h>

#include <nlohmann/json.hpp>

#include "tests/replay/worker.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/run_program.hpp"
#include "tests/support/test_client.hpp"

using namespace apportion;
using namespace apportion::testing;
using nlohmann::json;

namespace {

json status_of(const TestBroker& broker) {
  const Ran ran = run_program({built("cli/apportion"), "status", "--json"},
                              {{"APPORTION_SOCKET", broker.socket()}, {"CUDASIM_DIR", ""}});
  REQUIRE(ran.status == 0);
  REQUIRE(ran.output.find('\n') == ran.output.size() - 1);
  return json::parse(ran.output);
}

json row_of(const json& rows, const std::string& key, const json& value) {
  for (const json& row : rows)
    if (row.at(key) == value) return row;
  return {};
}

// P = sum(u) + X + F, every sum over rows agrees, and the table's rows are the device's used bytes.
void check_adds_up(const json& status, std::uint64_t device_used) {
  const json& broker = status["broker"];
  std::uint64_t jobs = 0;
  for (const json& job : status["jobs"]) {
    jobs += job["charged_bytes"].get<std::uint64_t>();
    std::uint64_t sessions = 0;
    for (const json& session : status["sessions"])
      if (session["job"] == job["job"]) sessions += session["charged_bytes"].get<std::uint64_t>();
    CHECK(sessions == job["charged_bytes"]);
    CHECK(job["charged_bytes"] ==
          job["used_bytes"].get<std::uint64_t>() + job["idle_bytes"].get<std::uint64_t>() +
              job["unspent_bytes"].get<std::uint64_t>() + job["in_transit_bytes"].get<std::uint64_t>());
  }
  CHECK(jobs == broker["charged_bytes"]);
  CHECK(broker["pool_bytes"] ==
        jobs + broker["in_transit_bytes"].get<std::uint64_t>() + broker["free_bytes"].get<std::uint64_t>());
  std::uint64_t rows = broker["pool_bytes"].get<std::uint64_t>() - broker["loose_bytes"].get<std::uint64_t>();
  for (const json& other : status["others"])
    rows += other["bytes"].get<std::uint64_t>();
  CHECK(rows == device_used);
}

}  // namespace

TEST_CASE(
    "R12: status shows told, used, idle, in transit, overhead and foreign, and its rows are the device's "
    "used bytes") {
  BrokerOptions options;
  options.context = 128_MiB;
  options.jobs = "[jobs.a]\nshare = \"0.5\"\n[jobs.b]\nshare = \"0.25-0.5\"\n";
  TestBroker broker(options);
  const std::uint64_t pool = broker.pool().value;
  {
    const json empty = status_of(broker);
    check_adds_up(empty, broker.device().used_bytes(0));
    CHECK(empty["sessions"].empty());
    CHECK(empty["broker"]["free_bytes"] == pool);
    CHECK(empty["broker"]["simulated"] == true);
    CHECK(empty["broker"]["device_bytes"] == (8_GiB).value);
    CHECK(empty["broker"]["closed"] == "");
  }
  // a: 256 MiB in use, 128 MiB leased and idle.
  TestClient a(broker);
  a.attach("a");
  const std::uint64_t kept = a.exact(256_MiB);
  const std::uint64_t idle = a.alloc(128_MiB);
  a.write(kept, 256_MiB, 1);
  a.free(idle);
  a.must("trim " + std::to_string((256_MiB + 128_MiB).value));  // reports, and gives nothing back
  // b: a dead client whose forked child keeps 64 MiB.
  TestClient b(broker);
  b.attach("b", true);
  b.exact(64_MiB);
  const pid_t child = std::stoi(b.must("rawfork"));
  b.kill();
  // A stranger: a context and what it took.
  replay::Worker stranger({"--device", "sim:8192MiB", "--first-request", std::to_string((16_MiB).value)},
                          {{"CUDASIM_DIR", broker.device_folder()}});
  stranger.expect("ready");
  stranger.go();
  stranger.expect("told");
  const auto settled = [&] {
    const json now = status_of(broker);
    const json dead = row_of(now["sessions"], "pid", b.pid());
    const json foreign = row_of(now["others"], "pid", stranger.pid());
    const json ours = row_of(now["others"], "pid", a.pid());
    return dead.is_object() && dead["state"] == "zombie" && foreign.is_object() && ours.is_object() &&
           foreign["bytes"] == (128_MiB).value && ours["bytes"] == (128_MiB).value;
  };
  CHECK(eventually(settled, std::chrono::seconds(20)));
  const json now = status_of(broker);
  INFO(now.dump(1));
  const json job_a = row_of(now["jobs"], "job", "a");
  const json session_a = row_of(now["sessions"], "pid", a.pid());
  CHECK(session_a["told_bytes"] == job_a["guarantee_bytes"]);
  CHECK(session_a["charged_bytes"] == (384_MiB).value);
  CHECK(session_a["used_bytes"] == (256_MiB).value);
  CHECK(session_a["idle_bytes"] == (128_MiB).value);
  CHECK(session_a["in_transit_bytes"] == 0);
  CHECK(session_a["overhead_bytes"] == (128_MiB).value);
  CHECK(session_a["state"] == "attached");
  CHECK(session_a["reclaimable"] == false);
  CHECK(session_a["uid"] == ::getuid());
  CHECK(session_a["report"]["bytes_in_use"] == (256_MiB).value);
  CHECK(job_a["told_free_bytes"] == job_a["told_total_bytes"].get<std::uint64_t>() - (384_MiB).value);
  const json session_b = row_of(now["sessions"], "pid", b.pid());
  const json job_b = row_of(now["jobs"], "job", "b");
  CHECK(session_b["told_bytes"] == job_b["limit_bytes"]);  // it said that it gives memory back
  CHECK(session_b["charged_bytes"] == (64_MiB).value);
  CHECK(session_b["in_transit_bytes"] == (64_MiB).value);
  CHECK(session_b["used_bytes"] == 0);
  CHECK(now["broker"]["foreign_bytes"] == (128_MiB).value);
  const json foreign = row_of(now["others"], "pid", stranger.pid());
  CHECK(foreign["kind"] == "foreign");
  CHECK(foreign["bytes"] == (128_MiB).value);
  CHECK(foreign["name"] == "replay_race_wor");
  check_adds_up(now, broker.device().used_bytes(0));

  ::kill(child, SIGKILL);
  a.free(kept);
  a.detach();
  a.kill();
  stranger.finish();
}

TEST_CASE("R7: status tells what a process holds from what it uses") {
  BrokerOptions options;
  options.jobs = "[jobs.a]\nshare = \"1.0\"\n";
  TestBroker broker(options);
  TestClient client(broker);
  client.attach("a");
  // A pool of .75 for an operation of four bytes.
  const Bytes pool{broker.pool().value / 4 * 3};
  const std::uint64_t block = client.alloc(pool);
  client.free(block);
  client.alloc(4_B);
  client.trim(pool);
  const json status = status_of(broker);
  const json session = row_of(status["sessions"], "pid", client.pid());
  INFO(session.dump(1));
  CHECK(session["charged_bytes"].get<std::uint64_t>() >= round_down(pool, broker.chunk()).value);
  CHECK(session["report"]["bytes_in_use"].get<std::uint64_t>() <= 512);
  CHECK(session["used_bytes"].get<std::uint64_t>() <= broker.chunk().value);
}

TEST_CASE("status without a broker lists every path tried, and how to start one") {
  const Scratch scratch;
  Launch launch;
  launch.command = {built("cli/apportion"), "status"};
  launch.variables = {{"APPORTION_SOCKET", ""}, {"XDG_RUNTIME_DIR", scratch.path()}};
  const Refused refused = run_refused(launch);
  INFO(refused.errors);
  CHECK(refused.status == 1);
  CHECK(refused.output.empty());
  CHECK(refused.errors.find('\n') == refused.errors.size() - 1);
  CHECK(refused.errors.find(scratch.path() + "/apportion/") != std::string::npos);
  CHECK(refused.errors.find("/run/apportion/") != std::string::npos);
  CHECK(refused.errors.find("apportiond --config") != std::string::npos);
}

TEST_CASE("status is a table that a person reads, with every job and process in it") {
  BrokerOptions options;
  options.jobs = "[jobs.trainer]\nshare = \"0.5\"\n[jobs.notebook]\nshare = \"0.25\"\n";
  TestBroker broker(options);
  TestClient client(broker);
  client.attach("trainer");
  client.alloc(64_MiB);
  const Ran ran = run_program({built("cli/apportion"), "status"}, {{"APPORTION_SOCKET", broker.socket()}});
  INFO(ran.output);
  CHECK(ran.status == 0);
  for (const std::string word : {"trainer", "notebook", "64 MiB", "simulated"}) {
    INFO(word);
    CHECK(ran.output.find(word) != std::string::npos);
  }
  CHECK(ran.output.find(std::to_string(client.pid())) != std::string::npos);
}
