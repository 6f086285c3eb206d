// The broker at its own limits, at its fault points, and as a user of its own.
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <memory>

#include "tests/support/catch.hpp"
#include "tests/support/raw_client.hpp"
#include "tests/support/test_client.hpp"

using namespace apportion;
using namespace apportion::testing;

namespace {

constexpr uid_t kBroker = 4243;
constexpr uid_t kOne = 4244;
constexpr uid_t kOther = 4245;

BrokerOptions two_jobs() {
  BrokerOptions options;
  options.device = 4_GiB;
  options.jobs = "[jobs.a]\nshare = \"0.5\"\n[jobs.b]\nshare = \"0.5\"\n";
  return options;
}

// What the kernel says `pid` has mapped of the device.
Bytes mapped_by(const TestBroker& broker, pid_t pid) {
  Bytes sum;
  for (const cudasim::AllocationInfo& each : broker.device().census().allocations)
    for (const int holder : each.mapped_by)
      if (holder == pid) sum += Bytes{each.bytes};
  return sum;
}

}  // namespace

TEST_CASE(
    "F12: a broker killed at a fault point charges, when it is started again, at least what clients hold") {
  const std::vector<std::string> points = {
      "grant.before_send:kill:3",       "grant.after_send:kill:3",    "released.before_send:kill:2",
      "job_page.before_publish:kill:9", "core.after_handle:kill:130", "welcome.before_send:kill:2",
      "pool.before_make:kill:50",       "pool.after_make:kill:50",    "pool.before_unmake:kill:1",
      "pool.after_unmake:kill:1",       "slot.before_store:kill:500"};
  for (const std::string& point : points) {
    INFO(point);
    BrokerOptions options = two_jobs();
    options.fault = point;
    TestBroker broker(options);
    std::vector<std::unique_ptr<TestClient>> clients;
    bool gone = false;
    for (int i = 0; i < 6 && !gone; ++i) {
      clients.push_back(std::make_unique<TestClient>(broker));
      TestClient& client = *clients.back();
      for (const std::string& command : {std::string("attach a"), "alloc " + std::to_string((96_MiB).value),
                                         "exact " + std::to_string((6_MiB).value)}) {
        gone = gone || !client.ask(command).ok;
      }
      const TestClient::Answer block = client.ask("exact " + std::to_string((2_MiB).value));
      gone = gone || !block.ok || !client.ask("free " + block.text).ok || !client.ask("trim 0").ok;
      const auto now = broker.try_status();
      gone = gone || !now.ok() || now->broker.restarts != 0;
    }
    StatusAnswer status;
    REQUIRE(eventually([&] {
      auto answer = broker.try_status();
      if (!answer.ok() || answer->broker.restarts == 0) return false;
      status = *std::move(answer);
      return true;
    }));
    CHECK((status.broker.flags & wire::BrokerRow::kClosed) != 0);
    TestBroker::check_sums(status);
    Bytes held;
    for (const auto& client : clients)
      held += mapped_by(broker, client->pid());
    CHECK(status.broker.totals.charged >= held.value);
    CHECK(status.broker.totals.free + status.broker.totals.loose == 0);
    CHECK(broker.device().census().overlap_bytes == 0);
  }
}

TEST_CASE("F29: a connection that says nothing is closed, one with a session is not") {
  TestBroker broker(two_jobs());
  RawClient silent(broker.socket());
  RawClient attached(broker.socket());
  attached.hello("a");
  CHECK(silent.hung_up(std::chrono::seconds(20)));
  CHECK_FALSE(attached.hung_up(std::chrono::milliseconds(1500)));
  CHECK(broker.job("a").job.sessions == 1);
}

TEST_CASE("F30: a broker without descriptors for more lets the next ones wait, and serves whom it has") {
  BrokerOptions options = two_jobs();
  options.open_files = 400;
  TestBroker broker(options);
  TestClient client(broker);
  client.attach("a");
  const std::uint64_t block = client.alloc(64_MiB);
  client.write(block, 64_MiB, 1);
  const pid_t pid = broker.broker_pid();
  {
    // Each speaks, so that none is closed for its silence.
    std::vector<std::unique_ptr<RawClient>> crowd;
    for (int i = 0; i < 100; ++i) {
      crowd.push_back(std::make_unique<RawClient>(broker.socket()));
      crowd.back()->send(hello_message("b"));
    }
    CHECK(eventually([&] { return broker.logged("event=crowded"); }));
    CHECK(open_fds(pid) < 400);
    client.free(client.alloc(512_MiB));
    client.trim(64_MiB);
    CHECK(client.check(block, 64_MiB, 1) == 64_MiB);
  }
  // The crowd's sessions are this process's and stay as orphans; their number is bounded.
  RawClient late(broker.socket());
  CHECK(exists(pid));
  CHECK(open_fds(pid) < 400);
  client.free(client.alloc(512_MiB));
  CHECK(client.check(block, 64_MiB, 1) == 64_MiB);
  CHECK_FALSE(broker.logged("event=fatal"));
  CHECK_FALSE(broker.logged("event=recovered"));
}

TEST_CASE("F57: a broker of its own user serves clients of two others, and takes back what their dead held") {
  if (!can_change_uid()) APPORTION_SKIP("without root no process of another uid can be started");
  BrokerOptions options = two_jobs();
  options.uid = kBroker;
  options.jobs = "[jobs.a]\nshare = \"0.5\"\nusers = [4244]\n[jobs.b]\nshare = \"0.5\"\n";
  TestBroker broker(options);
  const TestBroker::Footprint before = broker.footprint();
  {
    TestClient one(broker, {.uid = kOne});
    TestClient other(broker, {.uid = kOther});
    CHECK(other.ask("attach a").code == "APPORTION_DENIED");
    one.attach("a");
    other.attach("b");
    const std::uint64_t first = one.alloc(256_MiB);
    const std::uint64_t second = other.alloc(256_MiB);
    one.write(first, 256_MiB, 1);
    other.write(second, 256_MiB, 2);
    CHECK(one.check(first, 256_MiB, 1) == 256_MiB);
    CHECK(other.check(second, 256_MiB, 2) == 256_MiB);
    CHECK(broker.session_of(one.pid())->session.uid == kOne);
    CHECK(broker.session_of(other.pid())->session.uid == kOther);
    one.kill();
    CHECK(eventually([&] { return broker.job("a").job.charged == 0; }));
    other.free(second);
    other.trim();
    // Many at once: descriptors in flight are limited for a sender that is not root.
    other.free(other.alloc(Bytes{broker.job("b").job.limit}));
    other.detach();
    other.kill();
  }
  broker.wait_idle();
  broker.wait_footprint(before);
  CHECK(broker.stop() == 0);
}
