// The shell as a whole: apportiond against lost keepers, signals, changed configs and damaged journals.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "shm/socket_path.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/raw_client.hpp"
#include "tests/support/run_program.hpp"
#include "tests/support/test_client.hpp"

using namespace apportion;
using namespace apportion::testing;

namespace {

BrokerOptions one_job(std::string broker = {}) {
  BrokerOptions options;
  options.device = 4_GiB;
  options.broker = std::move(broker);
  options.jobs = "[jobs.a]\nshare = \"0.5+\"\n";
  return options;
}

void rewrite(const TestBroker& broker, const std::string& lines) {
  broker.scratch().write("apportion.toml",
                         "[broker]\ndevice = \"sim:4096MiB\"\n" + lines + "\n[jobs.a]\nshare = \"0.5+\"\n");
}

// Kills the broker of now; the status of the next one.
StatusAnswer restart(const TestBroker& broker) {
  const pid_t last = broker.broker_pid();
  ::kill(last, SIGKILL);
  StatusAnswer answer;
  REQUIRE(eventually([&] {
    Result<StatusAnswer> status = broker.try_status();
    if (!status.ok() || static_cast<pid_t>(status->broker.pid) == last) return false;
    answer = *std::move(status);
    return true;
  }));
  return answer;
}

bool closed(const StatusAnswer& status) {
  return (status.broker.flags & wire::BrokerRow::kClosed) != 0;
}

// How often the process was woken so far, over its threads.
std::uint64_t wakeups(pid_t pid) {
  std::uint64_t sum = 0;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task")) {
    std::ifstream status(thread.path() / "status");
    for (std::string word; status >> word;) {
      std::uint64_t count = 0;
      if (word == "voluntary_ctxt_switches:" && status >> count) sum += count;
    }
  }
  return sum;
}

void wait_for(std::chrono::milliseconds time) {
  const auto end = Clock::now() + time;
  while (Clock::now() < end)
    ::poll(nullptr, 0, 20);
}

}  // namespace

TEST_CASE("F51: without its keeper the broker serves on: chunks are made, unmade and leased") {
  TestBroker broker(one_job());
  const pid_t pid = broker.broker_pid();
  TestClient client(broker);
  client.attach("a");
  client.free(client.alloc(64_MiB));
  broker.keeper().kill();
  for (int i = 0; i < 3; ++i) {
    const std::uint64_t block = client.exact(96_MiB);  // made, kept by nobody, and unmade again
    client.write(block, 96_MiB, 5);
    CHECK(client.check(block, 96_MiB, 5) == 96_MiB);
    client.free(block);
    client.trim();
  }
  const StatusAnswer status = broker.status();
  TestBroker::check_sums(status);
  CHECK(status.broker.keeper_pid == 0);
  CHECK(broker.logged("event=lost what=keeper"));
  CHECK(broker.logged("stop apportiond (kill -TERM " + std::to_string(pid) + ")"));
  client.detach();
  broker.wait_idle();
  ::kill(pid, SIGTERM);  // nobody else does
  CHECK(eventually([&] {
    return !exists(pid) || text_of("/proc/" + std::to_string(pid) + "/stat").find(") Z") != std::string::npos;
  }));
  CHECK_FALSE(std::filesystem::exists(broker.socket()));
  CHECK(broker.device().wait_no_references(20'000));
}

TEST_CASE("F51: a keeper that dies while its broker starts ends the start, and nothing stays") {
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
                      {"APPORTION_FAULT", "pool.after_make:stop:3"}};
  launch.errors = scratch.path() + "/log";
  Process keeper(launch);
  pid_t broker = 0;
  REQUIRE(eventually([&] {
    for (const pid_t child : children_of(keeper.pid()))
      if (text_of("/proc/" + std::to_string(child) + "/stat").find(") T") != std::string::npos)
        broker = child;
    return broker != 0;
  }));
  keeper.kill();
  ::kill(broker, SIGCONT);
  CHECK(device.control().wait_no_references(20'000));
  CHECK_FALSE(std::filesystem::exists(scratch.path() + "/broker.sock"));
  CHECK(text_of(launch.errors).find("the keeper is gone") != std::string::npos);
}

TEST_CASE("SIGHUP changes nothing yet, says so, and ends nobody") {
  TestBroker broker(one_job());
  const pid_t pid = broker.broker_pid();
  for (int i = 0; i < 3; ++i)
    broker.keeper().signal(SIGHUP);
  ::kill(pid, SIGHUP);
  CHECK(eventually([&] { return broker.logged("reloading comes with a later version"); }));
  CHECK(broker.broker_pid() == pid);
  CHECK(broker.status().broker.restarts == 0);
}

TEST_CASE("SIGTERM between two brokers ends the keeper, and removes the socket's file") {
  TestBroker broker(one_job());
  static_cast<void>(restart(broker));
  ::kill(broker.broker_pid(), SIGKILL);  // the second death in a row: the next start waits
  REQUIRE(eventually([&] { return children_of(broker.keeper().pid()).empty(); }));
  CHECK(std::filesystem::exists(broker.socket()));
  broker.keeper().signal(SIGTERM);
  CHECK(broker.keeper().wait() == 0);
  CHECK_FALSE(std::filesystem::exists(broker.socket()));
}

TEST_CASE("SIGTERM ends a stuck broker, and its socket's file goes with it") {
  TestBroker broker(one_job());
  ::kill(broker.broker_pid(), SIGSTOP);
  broker.keeper().signal(SIGTERM);
  CHECK(broker.keeper().wait() == 0);
  CHECK_FALSE(std::filesystem::exists(broker.socket()));
}

TEST_CASE("F19: a pool of another size after a crash: closed, with one clear line") {
  TestBroker broker(one_job("pool = \"2GiB\""));
  rewrite(broker, "pool = \"3GiB\"");
  const StatusAnswer status = restart(broker);
  CHECK(closed(status));
  INFO(status.broker.note.view());
  CHECK(status.broker.note.view().find("another size (2 GiB)") != std::string_view::npos);
  TestBroker::check_sums(status);
  CHECK(status.broker.totals.free + status.broker.totals.loose == 0);
}

TEST_CASE("F18: nothing leased at a crash: the next broker is open, with the pool that the config says now") {
  TestBroker broker(one_job("pool = \"1GiB\"\nreserve = \"leased\""));
  rewrite(broker, "pool = \"3GiB\"\nreserve = \"leased\"");
  const StatusAnswer status = restart(broker);
  CHECK_FALSE(closed(status));
  CHECK(status.broker.totals.pool == (3_GiB).value);
  TestClient client(broker);
  client.attach("a");
  client.free(client.alloc(2_GiB));
  client.detach();
  CHECK(eventually([&] { return broker.status().broker.totals.loose == (3_GiB).value; }));
  // And the new journal is the one that is kept.
  CHECK_FALSE(closed(restart(broker)));
}

TEST_CASE(
    "F17: a journal whose header is damaged: the next broker is closed, serves status, and grants nothing") {
  TestBroker broker(one_job());
  const std::string fds = "/proc/" + std::to_string(broker.keeper().pid()) + "/fd";
  bool damaged = false;
  for (const auto& entry : std::filesystem::directory_iterator(fds)) {
    std::error_code ignored;
    if (std::filesystem::read_symlink(entry, ignored).string().find("apportion-journal") == std::string::npos)
      continue;
    const Fd journal(::open(entry.path().c_str(), O_RDWR | O_CLOEXEC));
    damaged = ::pwrite(journal.get(), "damage", 6, 16) == 6;
  }
  REQUIRE(damaged);
  for (int i = 0; i < 2; ++i) {
    const StatusAnswer status = restart(broker);
    CHECK(closed(status));
    INFO(status.broker.note.view());
    CHECK(status.broker.note.view().find("header is damaged") != std::string_view::npos);
    CHECK(status.broker.totals.in_transit == status.broker.totals.pool);
    TestBroker::check_sums(status);
  }
  TestClient client(broker);
  client.attach("a");
  CHECK(client.ask("alloc " + std::to_string((64_MiB).value)).code == "APPORTION_BUSY");
}

TEST_CASE("F30: out of descriptors the broker holds new ones off, serves its sessions, and recovers") {
  BrokerOptions options = one_job("pool = \"1GiB\"");
  options.open_files = 32 + 256;
  TestBroker broker(options);
  TestClient client(broker);
  client.attach("a");
  const std::uint64_t block = client.alloc(64_MiB);
  {
    std::vector<Fd> flood;
    for (int i = 0; i < 400; ++i) {
      Result<Fd> one = connect_to(broker.socket());
      if (one.ok()) flood.push_back(*std::move(one));
      if (i % 40 == 0) client.free(client.alloc(96_MiB));
    }
    client.write(block, 64_MiB, 1);
    client.free(client.exact(48_MiB));
  }
  TestClient late(broker);
  late.attach("a");
  late.free(late.alloc(64_MiB));
  late.detach();
  CHECK(client.check(block, 64_MiB, 1) == 64_MiB);
  client.detach();
  broker.wait_idle();
  CHECK(broker.status().broker.restarts == 0);
}

TEST_CASE("at rest a broker is woken by its keeper's pings only") {
  TestBroker broker(one_job());
  TestClient client(broker);
  client.attach("a");
  client.free(client.alloc(64_MiB));
  const pid_t pid = broker.broker_pid();
  // What follows from the start, and what is overwritten ahead.
  REQUIRE(eventually([&] { return !broker.helper_pid().has_value(); }));
  wait_for(std::chrono::milliseconds(500));
  const std::uint64_t before = wakeups(pid);
  wait_for(std::chrono::seconds(4));
  const std::uint64_t woken = wakeups(pid) - before;
  INFO(woken);
  CHECK(woken > 0);    // the pings come
  CHECK(woken <= 40);  // each wakes the strand twice and the worker once, and nothing else does
}
