// Brokers that must not start because of what is there already, and versions that must not talk to each
// other.
#include <signal.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>

#include "shm/socket_path.hpp"
#include "tests/support/bench.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/raw_client.hpp"
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

TEST_CASE("F20: a second broker of one device is refused by the first one's pid, which serves on") {
  TestBroker broker(one_job());
  TestClient client(broker);
  client.attach("a");
  const std::uint64_t block = client.alloc(64_MiB);
  client.write(block, 64_MiB, 1);
  const std::string first = "pid " + std::to_string(broker.broker_pid());
  const Scratch elsewhere;
  SECTION("at another socket, as often as it is tried") {
    for (int i = 0; i < 20; ++i)
      expect_refused(broker.launch(broker.config(), elsewhere.path() + "/broker.sock"),
                     {"has a broker already", first, "apportion status"});
    CHECK_FALSE(std::filesystem::exists(elsewhere.path() + "/broker.sock"));
  }
  SECTION("at the same socket") {
    expect_refused(broker.launch(broker.config(), broker.socket()), {"has a broker already", first});
  }
  SECTION("as another user") {
    if (!can_change_uid()) APPORTION_SKIP("without root no process of another uid can be started");
    Launch launch = broker.launch(broker.config(), elsewhere.path() + "/broker.sock");
    REQUIRE(::chown(elsewhere.path().c_str(), kStranger, kStranger) == 0);
    launch.uid = kStranger;
    expect_refused(launch, {"has a broker already", first, "uid 0"});
  }
  CHECK(client.check(block, 64_MiB, 1) == 64_MiB);
  client.free(client.alloc(128_MiB));
  client.free(block);
  client.detach();
  broker.wait_idle();
  CHECK(broker.status().broker.restarts == 0);
}

TEST_CASE("F20: a broker that was started again keeps the device's lock") {
  TestBroker broker(one_job());
  const pid_t first = broker.broker_pid();
  ::kill(first, SIGKILL);
  REQUIRE(eventually([&] {
    const auto status = broker.try_status();
    return status.ok() && status->broker.restarts == 1;
  }));
  const Scratch elsewhere;
  expect_refused(broker.launch(broker.config(), elsewhere.path() + "/broker.sock"), {"has a broker already"});
}

TEST_CASE("F21: what lies at the socket's path is replaced only when it is a stale socket of ours") {
  Bench bench;
  const std::string config = kGoodBroker + "[jobs.a]\nshare = \"0.5\"\n";
  const std::string path = bench.scratch.path() + "/broker.sock";
  Launch launch = bench.launch(config);
  SECTION("a file") {
    bench.scratch.write("broker.sock", "precious");
    expect_refused(launch, {path, "is no socket", "left alone", "remove it"});
    CHECK(text_of(path) == "precious");
  }
  SECTION("a symlink") {
    const std::string target = bench.scratch.write("target", "precious");
    REQUIRE(::symlink(target.c_str(), path.c_str()) == 0);
    expect_refused(launch, {path, "left alone"});
    CHECK(text_of(target) == "precious");
    CHECK(std::filesystem::is_symlink(path));
  }
  SECTION("a socket of another user") {
    if (!can_change_uid()) APPORTION_SKIP("without root no process of another uid can be started");
    { REQUIRE(listen_at(path, 0600).ok()); }
    REQUIRE(::chown(path.c_str(), kStranger, kStranger) == 0);
    expect_refused(launch, {path, "is a socket of uid 4242", "left alone"});
    CHECK(std::filesystem::exists(path));
  }
  SECTION("a socket of ours that somebody answers") {
    Result<Fd> theirs = listen_at(path, 0600);
    REQUIRE(theirs.ok());
    expect_refused(launch, {path, "answers"});
    CHECK(std::filesystem::exists(path));
  }
  SECTION("a stale socket of ours") {
    { REQUIRE(listen_at(path, 0600).ok()); }
    REQUIRE(std::filesystem::exists(path));
    launch.errors = bench.scratch.path() + "/log";
    Process broker(launch);
    REQUIRE(eventually([&] { return ask_status_at(path).ok(); }));
    broker.signal(SIGTERM);
    CHECK(broker.wait() == 0);
    CHECK_FALSE(std::filesystem::exists(path));
  }
  CHECK(bench.device->census().referenced_bytes == 0);
}

TEST_CASE("F19: a client of another major version is refused by name, one of another minor is served") {
  TestBroker broker(one_job());
  SECTION("protocol major") {
    RawClient client(broker.socket());
    wire::Hello hello = hello_message("a");
    hello.header.major = 9;
    REQUIRE(client.send(hello));
    const auto answer = client.receive();
    REQUIRE(answer);
    const auto& refused = std::get<wire::Refused>(answer->message);
    INFO(refused.text.view());
    CHECK(refused.code == static_cast<std::uint32_t>(Errc::protocol));
    CHECK(refused.text.view().find('9') != std::string_view::npos);
    CHECK(client.hung_up());
  }
  SECTION("page major") {
    RawClient client(broker.socket());
    wire::Hello hello = hello_message("a");
    hello.layouts.ledger_major = 7;
    REQUIRE(client.send(hello));
    const auto answer = client.receive();
    REQUIRE(answer);
    const auto* refused = std::get_if<wire::Refused>(&answer->message);
    REQUIRE(refused != nullptr);
    INFO(refused->text.view());
    CHECK(refused->text.view().find("ledger") != std::string_view::npos);
    CHECK(client.hung_up());
  }
  SECTION("a newer minor, with a longer HELLO") {
    RawClient client(broker.socket());
    struct {
      wire::Hello hello;
      std::array<std::byte, 24> more{};
    } longer{hello_message("a"), {}};
    longer.hello.header.minor = wire::kMinor + 1;
    longer.hello.header.size = sizeof longer;
    longer.hello.layouts.ledger_minor = kLedgerMinor + 1;
    REQUIRE(client.send_bytes(std::as_bytes(std::span(&longer, 1))));
    const auto answer = client.receive();
    REQUIRE(answer);
    CHECK(std::holds_alternative<wire::Welcome>(answer->message));
  }
  // Nobody else notices.
  CHECK(broker.status().broker.restarts == 0);
}
