// Clients that die, fork and hang: what they held stays charged until the device shows the room, and then
// comes back.
#include <poll.h>
#include <signal.h>

#include <random>

#include "tests/support/catch.hpp"
#include "tests/support/test_client.hpp"

using namespace apportion;
using namespace apportion::testing;

namespace {

BrokerOptions two_jobs() {
  BrokerOptions options;
  options.device = 4_GiB;
  options.jobs = "[jobs.a]\nshare = \"0.5\"\n[jobs.b]\nshare = \"0.5\"\n";
  return options;
}

// While `child` lives, the memory of its dead parent is where it was.
void expect_zombie_until_child_is_gone(TestBroker& broker, pid_t parent, pid_t child, Bytes held) {
  REQUIRE(eventually([&] {
    const auto row = broker.session_of(parent);
    return row && row->session.state == static_cast<std::uint32_t>(SessionState::zombie);
  }));
  for (int i = 0; i < 20; ++i) {
    const StatusAnswer status = broker.status();
    TestBroker::check_sums(status);
    REQUIRE(status.sessions.size() == 1);
    REQUIRE(status.sessions[0].session.charged == held.value);
    ::poll(nullptr, 0, 20);
  }
  REQUIRE(exists(child));
  ::kill(child, SIGKILL);
  broker.wait_idle();
}

}  // namespace

TEST_CASE("F01: a client killed at any instant gives all back, others are untouched, nothing leaks") {
  const Watchdog watchdog(std::chrono::seconds(600));
  BrokerOptions options = two_jobs();
  options.death_min_ms = 0;
  options.death_max_ms = 200;
  TestBroker broker(options);
  std::mt19937 random(seed());
  TestClient witness(broker);
  witness.attach("b");
  const Bytes kept = 256_MiB;
  const std::uint64_t block = witness.alloc(kept);
  witness.write(block, kept, 7);
  const TestBroker::Footprint before = broker.footprint();
  const unsigned loops = rounds(20, 200);
  for (unsigned i = 0; i < loops; ++i) {
    TestClient client(broker);
    client.attach("a");
    const unsigned asks = 1 + random() % 6;
    for (unsigned k = 0; k < asks; ++k)
      client.send("alloc " + std::to_string((1 + random() % 200) << 20));
    const unsigned answers = random() % (asks + 1);
    for (unsigned k = 0; k < answers; ++k) {
      const TestClient::Answer answer = client.answer();
      INFO(answer.code << " " << answer.text);
      CHECK((answer.ok || answer.code == "APPORTION_QUOTA"));
    }
    client.kill();
    if (i % 5 == 0) TestBroker::check_sums(broker.status());
  }
  REQUIRE(eventually([&] {
    const StatusAnswer status = broker.status();
    return status.sessions.size() == 1 && status.broker.totals.in_transit == 0 &&
           status.broker.totals.charged == round_up(kept, broker.chunk()).value;
  }));
  TestBroker::check_sums(broker.status());
  CHECK(witness.check(block, kept, 7) == kept);
  broker.wait_footprint(before);
  witness.detach();
  broker.wait_idle();
  CHECK(broker.device().violations() == 0);
}

TEST_CASE("F02: a client killed between GRANT and ACK leaks nothing") {
  for (const char* point :
       {"client.after_grant", "client.before_map", "client.before_ack", "client.after_ack"}) {
    INFO(point);
    TestBroker broker(two_jobs());
    const TestBroker::Footprint before = broker.footprint();
    TestClient client(broker, {.fault = std::string(point) + ":kill"});
    client.attach("a");
    const TestClient::Answer answer = client.ask("alloc " + std::to_string((300_MiB).value));
    CHECK(answer.gone);
    CHECK(client.process().wait() == 128 + SIGKILL);
    broker.wait_idle();
    broker.wait_footprint(before);
    TestBroker::check_sums(broker.status());
  }
}

TEST_CASE("F03: a client killed between RELEASE and its answer frees once") {
  TestBroker broker(two_jobs());
  const TestBroker::Footprint before = broker.footprint();
  TestClient client(broker, {.fault = "client.after_release:kill"});
  client.attach("a");
  const std::uint64_t block = client.alloc(300_MiB);
  client.free(block);
  CHECK(client.ask("trim 0").gone);
  CHECK(client.process().wait() == 128 + SIGKILL);
  broker.wait_idle();
  broker.wait_footprint(before);
  CHECK(broker.device().violations() == 0);
}

TEST_CASE(
    "F05: memory of a dead client stays charged while its forked child keeps it, and comes back with the "
    "child") {
  TestBroker broker(two_jobs());
  const TestBroker::Footprint before = broker.footprint();
  TestClient client(broker);
  client.attach("a");
  client.alloc(300_MiB);
  const Bytes held{broker.job("a").job.charged};
  REQUIRE(held >= 300_MiB);
  SECTION("the child keeps socket and memory") {
    const pid_t child = std::stoi(client.must("rawfork"));
    client.kill();
    expect_zombie_until_child_is_gone(broker, client.pid(), child, held);
  }
  SECTION("the child's guard has closed the socket") {
    const pid_t child = std::stoi(client.must("fork"));
    client.kill();
    expect_zombie_until_child_is_gone(broker, client.pid(), child, held);
  }
  broker.wait_footprint(before);
}

TEST_CASE("F05: a job can use what a zombie does not hold, and never more than its limit") {
  BrokerOptions options = two_jobs();
  options.jobs = "[jobs.a]\nshare = \"0.5\"\nwait = \"200ms\"\n";  // the zombie's memory does not come back
  TestBroker broker(options);
  TestClient client(broker);
  client.attach("a");
  client.alloc(300_MiB);
  const Bytes held{broker.job("a").job.charged};
  const Bytes limit{broker.job("a").job.limit};
  const pid_t child = std::stoi(client.must("rawfork"));
  client.kill();
  REQUIRE(eventually([&] {
    return broker.session_of(client.pid())->session.state == static_cast<std::uint32_t>(SessionState::zombie);
  }));
  TestClient next(broker);
  next.attach("a");
  const TestClient::Answer refused = next.ask("alloc " + std::to_string(limit.value));
  CHECK(refused.code == "APPORTION_QUOTA");
  CHECK(refused.text.find(std::to_string(client.pid())) != std::string::npos);
  next.alloc(limit - held);
  TestBroker::check_sums(broker.status());
  ::kill(child, SIGKILL);
}

TEST_CASE("F06: a forked child is told that it is not attached, and the parent's arena is as it was") {
  TestBroker broker(two_jobs());
  TestClient client(broker);
  client.attach("a");
  const std::uint64_t block = client.alloc(100_MiB);
  client.write(block, 100_MiB, 3);
  const Bytes charged{broker.job("a").job.charged};
  const std::string child = client.must("forkuse");
  INFO(child);
  CHECK(child.rfind("APPORTION_NOT_ATTACHED not attached: this is a forked child", 0) == 0);
  CHECK(child.substr(child.size() - 3 * std::string(" APPORTION_NOT_ATTACHED").size()) ==
        " APPORTION_NOT_ATTACHED APPORTION_NOT_ATTACHED APPORTION_NOT_ATTACHED");
  CHECK(client.ask("verify").ok);
  CHECK(client.check(block, 100_MiB, 3) == 100_MiB);
  CHECK(broker.job("a").job.charged == charged.value);
  CHECK(broker.status().sessions.size() == 1);
  client.free(client.alloc(400_MiB));
  client.free(block);
  client.detach();
  broker.wait_idle();
}
