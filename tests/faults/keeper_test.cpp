// The keeper: it pings, restarts, and ends with its broker. Until recovery is built, a restarted broker
// starts closed.
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>

#include "tests/support/catch.hpp"
#include "tests/support/run_program.hpp"
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

// Waits for the next broker; its pid.
pid_t next_broker(const TestBroker& broker, pid_t last) {
  pid_t next = 0;
  REQUIRE(eventually([&] {
    const auto status = broker.try_status();
    if (!status.ok() || static_cast<pid_t>(status->broker.pid) == last) return false;
    next = static_cast<pid_t>(status->broker.pid);
    return true;
  }));
  return next;
}

// A restarted broker charges what its predecessor had leased, says that it is closed, and grants nothing.
void expect_closed(TestBroker& broker, Bytes leased) {
  const StatusAnswer status = broker.status();
  CHECK((status.broker.flags & wire::BrokerRow::kClosed) != 0);
  INFO(status.broker.note.view());
  CHECK(status.broker.note.view().find("earlier broker") != std::string_view::npos);
  CHECK(status.broker.totals.charged >= leased.value);
  CHECK(status.broker.totals.free + status.broker.totals.loose == 0);
  TestBroker::check_sums(status);
  TestClient late(broker);
  late.attach("b");
  const TestClient::Answer refused = late.ask("alloc " + std::to_string((64_MiB).value));
  CHECK(refused.code == "APPORTION_BUSY");
  CHECK(refused.text.find("grants nothing") != std::string::npos);
}

}  // namespace

TEST_CASE("a killed broker is started again, closed, and clients keep what they hold") {
  TestBroker broker(two_jobs());
  TestClient client(broker);
  client.attach("a");
  const std::uint64_t block = client.alloc(256_MiB);
  client.write(block, 256_MiB, 9);
  const Bytes leased{broker.job("a").job.charged};
  const cudasim::CensusReport before = broker.device().census();
  pid_t last = broker.broker_pid();
  for (std::uint32_t restart = 1; restart <= 3; ++restart) {
    ::kill(last, SIGKILL);
    last = next_broker(broker, last);
    CHECK(broker.status().broker.restarts == restart);
    expect_closed(broker, leased);
    CHECK(client.check(block, 256_MiB, 9) == 256_MiB);
    // The keeper's descriptors hold every chunk.
    CHECK(broker.device().census().referenced_bytes == before.referenced_bytes);
  }
  CHECK(broker.logged("event=recovered what=broker"));
  // What fits into what it holds goes on without a broker.
  client.free(block);
  const std::uint64_t again = client.alloc(128_MiB);
  client.write(again, 128_MiB, 4);
  CHECK(client.check(again, 128_MiB, 4) == 128_MiB);
  const TestClient::Answer more = client.ask("alloc " + std::to_string((1_GiB).value));
  CHECK(more.code == "APPORTION_DISCONNECTED");
  CHECK(more.text.find("what is held stays usable") != std::string::npos);
}

TEST_CASE("a closed broker names those who live only, and what it says to do opens it again") {
  TestBroker broker(two_jobs());
  TestClient early(broker);
  TestClient late(broker);
  TestClient last(broker);
  for (TestClient* client : {&early, &late, &last}) {
    client->attach("a");
    static_cast<void>(client->alloc(256_MiB));
  }
  const pid_t dead = broker.broker_pid();
  broker.keeper().signal(SIGSTOP);  // so that one client ends while there is no broker
  ::kill(dead, SIGKILL);
  early.kill();
  broker.keeper().signal(SIGCONT);
  const pid_t closed = next_broker(broker, dead);
  const auto names = [](const std::string_view text, pid_t pid) {
    return text.find(" " + std::to_string(pid) + ",") != std::string_view::npos;
  };
  CHECK_FALSE(broker.session_of(early.pid()));
  CHECK(broker.session_of(late.pid()));
  late.kill();
  CHECK(eventually([&] { return !broker.session_of(late.pid()); }));
  StatusAnswer status = broker.status();
  INFO(status.broker.note.view());
  CHECK(names(status.broker.note.view(), last.pid()));
  CHECK_FALSE(names(status.broker.note.view(), early.pid()));
  CHECK_FALSE(names(status.broker.note.view(), late.pid()));
  TestBroker::check_sums(status);
  {
    TestClient refused(broker);
    refused.attach("b");
    const TestClient::Answer answer = refused.ask("alloc " + std::to_string((64_MiB).value));
    INFO(answer.text);
    CHECK(names(answer.text, last.pid()));
    CHECK_FALSE(names(answer.text, late.pid()));
  }
  last.kill();
  CHECK(eventually([&] { return broker.status().broker.totals.charged == 0; }));
  status = broker.status();
  INFO(status.broker.note.view());
  const std::string stop = "stop apportiond (kill -TERM " + std::to_string(closed) + ") and start it again";
  CHECK(status.broker.note.view().ends_with("yet: " + stop));
  ::kill(closed, SIGTERM);
  CHECK(broker.keeper().wait() == 0);
  CHECK(broker.device().wait_no_references(20'000));
}

TEST_CASE("F45: a broker that is stuck is killed by its keeper and started again") {
  TestBroker broker(two_jobs());
  TestClient client(broker);
  client.attach("a");
  const std::uint64_t block = client.alloc(64_MiB);
  client.write(block, 64_MiB, 9);
  const pid_t stuck = broker.broker_pid();
  const TestClient idle(broker);
  ::kill(stuck, SIGSTOP);
  // The arena works on meanwhile.
  client.free(block);
  const std::uint64_t again = client.alloc(64_MiB);
  client.write(again, 64_MiB, 8);
  REQUIRE(eventually([&] { return !exists(stuck) || broker.logged("silent for 5 pings"); }));
  next_broker(broker, stuck);
  CHECK(broker.logged("silent for 5 pings: killed"));
  CHECK(client.check(again, 64_MiB, 8) == 64_MiB);
  expect_closed(broker, 64_MiB);
}

TEST_CASE("a broker that answers its keeper is left alone, however busy its clients are") {
  TestBroker broker(two_jobs());
  const pid_t pid = broker.broker_pid();
  TestClient client(broker);
  const auto until = Clock::now() + std::chrono::seconds(7);  // more than five pings
  while (Clock::now() < until)
    client.must("cycle 20 a " + std::to_string((64_MiB).value));
  CHECK(broker.broker_pid() == pid);
  CHECK(broker.status().broker.restarts == 0);
}

TEST_CASE("SIGTERM ends keeper and broker, and leaves no socket, no memory and no process behind") {
  for (const int signal : {SIGTERM, SIGINT}) {
    TestBroker broker(two_jobs());
    TestClient client(broker);
    client.attach("a");
    const std::uint64_t block = client.alloc(64_MiB);
    client.write(block, 64_MiB, 3);
    const pid_t pid = broker.broker_pid();
    broker.keeper().signal(signal);
    CHECK(broker.keeper().wait() == 0);
    CHECK(eventually([&] { return !exists(pid); }));
    CHECK_FALSE(std::filesystem::exists(broker.socket()));
    // Chunks live on in the client that maps them.
    CHECK(client.check(block, 64_MiB, 3) == 64_MiB);
    client.kill();
    CHECK(broker.device().wait_no_references(20'000));
  }
}

TEST_CASE("SIGTERM ends a broker that is stuck, too") {
  TestBroker broker(two_jobs());
  const pid_t pid = broker.broker_pid();
  ::kill(pid, SIGSTOP);
  broker.keeper().signal(SIGTERM);
  broker.keeper().wait();
  CHECK(eventually([&] { return !exists(pid); }));
}

TEST_CASE("a broker that dies before it was ever ready ends its keeper, and nothing stays") {
  cudasim::FolderOptions folder;
  folder.device_bytes = {(4_GiB).value};
  const cudasim::TemporaryFolder device(folder);
  const Scratch scratch;
  Launch launch;
  launch.command = {
      built("broker/apportiond"), "--config",
      scratch.write("apportion.toml", "[broker]\ndevice = \"sim:4096MiB\"\n[jobs.a]\nshare = \"0.5\"\n")};
  launch.variables = {{"APPORTION_SOCKET", scratch.path() + "/broker.sock"},
                      {"CUDASIM_DIR", device.path()},
                      {"CUDASIM_FORCE", "1"},
                      {"APPORTION_FAULT", "pool.after_make:kill:5"}};
  const Refused refused = run_refused(launch);
  INFO(refused.errors);
  CHECK(refused.status != 0);
  CHECK(device.control().wait_no_references(20'000));
}

TEST_CASE("F45: a client of a stuck broker is told so in time, and its arena works") {
  TestBroker broker(two_jobs());
  TestClient client(broker);
  client.attach("a");
  const std::uint64_t block = client.alloc(64_MiB);
  const pid_t pid = broker.broker_pid();
  // Stopped with its keeper, so that nobody restarts it.
  broker.keeper().signal(SIGSTOP);
  ::kill(pid, SIGSTOP);
  client.send("alloc " + std::to_string((512_MiB).value));
  const TestClient::Answer answer = client.answer();
  ::kill(pid, SIGCONT);
  broker.keeper().signal(SIGCONT);
  INFO(answer.code << " " << answer.text);
  CHECK(answer.code == "APPORTION_TIMED_OUT");
  CHECK(answer.text.find("stays usable") != std::string::npos);
  // The grant that came too late is given back, and the session goes on.
  client.free(client.alloc(128_MiB));
  client.free(block);
  client.trim();
  CHECK(eventually([&] { return broker.job("a").job.charged == 0; }));
  client.detach();
  broker.wait_idle();
}
