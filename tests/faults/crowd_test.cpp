// Many at once, and many times: shares hold, limits hold, and nothing is left behind.
#include <unistd.h>

#include <algorithm>
#include <random>

#include "tests/support/catch.hpp"
#include "tests/support/raw_client.hpp"
#include "tests/support/test_client.hpp"

using namespace apportion;
using namespace apportion::testing;

namespace {

std::size_t mappings_of(pid_t pid) {
  const std::string maps = text_of("/proc/" + std::to_string(pid) + "/maps");
  return static_cast<std::size_t>(std::count(maps.begin(), maps.end(), '\n'));
}

// Each client in a run of `rounds`; fails the test where one of them reports an error. What each was granted.
std::vector<std::uint64_t> run_rounds(TestBroker& broker, std::vector<TestClient>& clients, unsigned loops,
                                      Bytes bytes, const std::function<void()>& sample) {
  const std::string barrier = broker.scratch().path() + "/barrier";
  for (TestClient& client : clients)
    client.send("rounds " + std::to_string(loops) + " " + std::to_string(bytes.value) + " " +
                std::to_string(clients.size()) + " " + barrier);
  std::vector<std::uint64_t> granted;
  std::string errors;
  for (TestClient& client : clients) {
    std::optional<std::string> line;
    while (!(line = client.process().line(std::chrono::milliseconds(1)))) {
      REQUIRE(client.process().running());
      sample();
    }
    if (line->rfind("ok ", 0) == 0) {
      granted.push_back(std::stoull(line->substr(3)));
    } else {
      errors += *line + "\n";
    }
  }
  INFO(errors);
  REQUIRE(errors.empty());
  return granted;
}

}  // namespace

TEST_CASE("F43: eight processes that take their whole guarantee at once all get it, every time") {
  const Watchdog watchdog(std::chrono::seconds(600));
  BrokerOptions options;
  options.device = 8_GiB;
  for (int i = 0; i < 8; ++i)
    options.jobs += "[jobs.j" + std::to_string(i) + "]\nshare = \"0.125\"\n";
  TestBroker broker(options);
  std::vector<TestClient> clients;
  for (int i = 0; i < 8; ++i) {
    clients.emplace_back(broker);
    clients.back().attach("j" + std::to_string(i));
  }
  const Bytes guarantee = clients[0].info()["guarantee"];
  REQUIRE(guarantee.value > 0);
  const unsigned loops = rounds(5, 100);
  const auto granted =
      run_rounds(broker, clients, loops, guarantee, [&] { TestBroker::check_sums(broker.status()); });
  for (const std::uint64_t each : granted)
    CHECK(each == loops);
  CHECK(broker.status().broker.totals.charged == 0);
}

TEST_CASE("C21: sixteen processes of one job ask at once, and no sample shows the job above its limit") {
  const Watchdog watchdog(std::chrono::seconds(900));
  BrokerOptions options;
  options.device = 8_GiB;
  options.jobs = "[jobs.a]\nlimit = \"1GiB\"\n";
  options.context = 64_MiB;  // sixteen of them fit beside the pool
  TestBroker broker(options);
  std::vector<TestClient> clients;
  for (int i = 0; i < 16; ++i) {
    clients.emplace_back(broker);
    clients.back().attach("a");
  }
  const unsigned loops = rounds(20, 1000);
  unsigned samples = 0;
  std::uint64_t highest = 0;
  const auto granted = run_rounds(broker, clients, loops, 128_MiB, [&] {
    const StatusAnswer status = broker.status();
    TestBroker::check_sums(status);
    highest = std::max(highest, status.jobs.at(0).job.charged);
    if (++samples % 4 != 0) return;
    // What the kernel says is mapped, whatever the broker says.
    std::uint64_t mapped = 0;
    for (const cudasim::AllocationInfo& each : broker.device().census().allocations)
      if (!each.mapped_by.empty()) mapped += each.bytes;
    CHECK(mapped <= (1_GiB).value);
  });
  std::uint64_t all = 0;
  for (const std::uint64_t each : granted)
    all += each;
  CHECK(samples > 0);
  CHECK(highest <= (1_GiB).value);
  CHECK(all <= std::uint64_t{8} * loops);
  CHECK(all >= loops);
  CHECK(broker.job("a").peak_charged <= (1_GiB).value);
  CHECK(broker.status().broker.totals.charged == 0);
  CHECK(broker.device().census().overlap_bytes == 0);
}

TEST_CASE(
    "F49: attaching and detaching over and over leaves descriptors, mappings and references as they were") {
  const Watchdog watchdog(std::chrono::seconds(600));
  BrokerOptions options;
  options.device = 4_GiB;
  options.jobs = "[jobs.a]\nshare = \"0.5\"\n";
  TestBroker broker(options);
  TestClient client(broker);
  client.must("cycle 3 a " + std::to_string((64_MiB).value));
  broker.wait_idle();
  const TestBroker::Footprint before = broker.footprint();
  const std::string fds = client.must("fds");
  const std::size_t own = mappings_of(client.pid());
  const std::size_t brokers = mappings_of(broker.broker_pid());
  const unsigned loops = rounds(100, 1000);
  client.must("cycle " + std::to_string(loops / 2) + " a " + std::to_string((64_MiB).value));
  client.must("cycle " + std::to_string(loops / 2) + " a 0");
  broker.wait_idle();
  broker.wait_footprint(before);
  CHECK(client.must("fds") == fds);
  CHECK(mappings_of(client.pid()) <= own + 2);
  CHECK(mappings_of(broker.broker_pid()) <= brokers + 2);
  // As processes that come and go.
  for (unsigned i = 0; i < loops / 10; ++i) {
    TestClient guest(broker);
    guest.attach("a");
    // What the dead held is charged until the device shows its room.
    REQUIRE(eventually([&] { return guest.ask("alloc " + std::to_string((64_MiB).value)).ok; }));
    if (i % 2 == 0) guest.detach();
  }
  broker.wait_idle();
  broker.wait_footprint(before);
  CHECK(broker.device().violations() == 0);
}

TEST_CASE(
    "K3: exported descriptors pin nothing: the broker closes after sending, the client after importing") {
  BrokerOptions options;
  options.device = 4_GiB;
  options.jobs = "[jobs.a]\nshare = \"0.5\"\n[jobs.b]\nshare = \"0.5\"\n";
  TestBroker broker(options);
  TestClient client(broker);
  client.attach("a");
  const std::uint64_t block = client.alloc(32_MiB);
  const std::size_t client_fds = std::stoul(client.must("fds"));
  const TestBroker::Footprint before = broker.footprint();
  const std::uint64_t more = client.alloc(512_MiB);
  CHECK(std::stoul(client.must("fds")) == client_fds);
  broker.wait_footprint(before);

  // A client that does not read its grant: what is in flight is not the broker's any more.
  {
    RawClient deaf(broker.socket());
    const wire::Welcome welcome = deaf.hello("b");
    auto request = wire::make<wire::Request>(deaf.next_request(), welcome.header.epoch);
    request.min_bytes = request.want_bytes = (256_MiB).value;
    const pid_t pid = broker.broker_pid();
    TestBroker::Footprint with_deaf = broker.footprint();
    REQUIRE(deaf.send(request));
    REQUIRE(eventually([&] { return broker.job("b").job.charged == (256_MiB).value; }));
    CHECK(eventually([&] { return open_fds(pid) <= with_deaf.broker_fds; }));
    // It reads, forgets to close, and says goodbye. Its descriptors keep the old chunks' bytes, which the
    // device shows; what the pool hands out from then on is made anew.
    auto grant = deaf.receive();
    REQUIRE(grant);
    REQUIRE(grant->fds.size() == 8);
    REQUIRE(deaf.send(wire::make<wire::Detach>(deaf.next_request(), welcome.header.epoch)));
    REQUIRE(deaf.receive());
    REQUIRE(eventually([&] {
      const StatusAnswer status = broker.status();
      return status.broker.totals.free == status.broker.totals.pool - status.jobs[0].job.charged;
    }));
    CHECK(broker.footprint().allocations == before.allocations + 8);
    grant->fds.clear();
    CHECK(eventually([&] { return broker.footprint().allocations == before.allocations; }));
  }
  client.free(more);
  client.free(block);
  client.detach();
  broker.wait_idle();
  CHECK(broker.stop() == 0);
  CHECK(broker.device().wait_no_references(20'000));
  client.kill();
}

TEST_CASE(
    "K5: thousands of chunks pass through a client with 1,024 descriptors, and EMFILE is reported as "
    "itself") {
  BrokerOptions options;
  options.device = 16_GiB;
  options.broker = "chunk = \"2MiB\"\n";
  options.jobs = "[jobs.a]\nshare = \"1.0\"\n";
  TestBroker broker(options);
  const Bytes whole{broker.job("a").job.limit};
  REQUIRE(whole / 2_MiB > 4000);
  TestClient client(broker, {.open_files = 1024});
  client.attach("a");
  const std::size_t fds = std::stoul(client.must("fds"));
  const std::uint64_t block = client.alloc(whole);
  CHECK(std::stoul(client.must("fds")) == fds);
  client.write(block, 64_MiB, 1);
  client.write(block + whole.value - (64_MiB).value, 64_MiB, 2);
  CHECK(client.check(block, 64_MiB, 1) == 64_MiB);
  CHECK(client.check(block + whole.value - (64_MiB).value, 64_MiB, 2) == 64_MiB);
  const TestClient::Answer over = client.ask("alloc " + std::to_string((2_MiB).value));
  CHECK(over.code == "APPORTION_QUOTA");
  client.free(block);
  client.detach();
  client.kill();
  broker.wait_idle();

  TestClient narrow(broker, {.open_files = 40});
  narrow.attach("a");
  const TestClient::Answer answer = narrow.ask("alloc " + std::to_string((1_GiB).value));
  INFO(answer.code << " " << answer.text);
  CHECK(answer.code == "APPORTION_SYSTEM");
  CHECK(answer.text.find("RLIMIT_NOFILE") != std::string::npos);
  REQUIRE(eventually([&] { return broker.job("a").job.charged == 0; }));
  narrow.free(narrow.alloc(16_MiB));
}
