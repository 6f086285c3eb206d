// A driver that refuses: on the broker's side and on the client's, at whichever call.
#include "tests/support/catch.hpp"
#include "tests/support/test_client.hpp"

using namespace apportion;
using namespace apportion::testing;

namespace {

constexpr int kOutOfMemory = 2;
constexpr int kUnknown = 999;

BrokerOptions two_jobs(const std::string& reserve) {
  BrokerOptions options;
  options.device = 4_GiB;
  options.broker = "reserve = \"" + reserve + "\"\n";
  options.jobs = "[jobs.a]\nshare = \"0.5\"\n[jobs.b]\nshare = \"0.5\"\n";
  return options;
}

std::string bytes(Bytes size) {
  return std::to_string(size.value);
}

}  // namespace

TEST_CASE("F32: the device has no room for a chunk: the request is refused, and the book is as before") {
  struct Way {
    const char* reserve;
    const char* how;
    std::uint64_t first;  // the first making that fails: what was made before it must go, too
  };
  for (const auto& [reserve, how, first] : {Way{"all", "exact", 1}, Way{"leased", "exact", 1},
                                            Way{"leased", "alloc", 1}, Way{"leased", "alloc", 2}}) {
    INFO(reserve << " " << how << ", from making " << first << " on");
    TestBroker broker(two_jobs(reserve));
    TestClient client(broker);
    client.attach("a");
    const TestBroker::Footprint before = broker.footprint();
    broker.device().set_fault("cuMemCreate",
                              {.code = kOutOfMemory, .first = first, .count = cudasim::Fault::kForEver});
    const TestClient::Answer answer = client.ask(std::string(how) + " " + bytes(64_MiB));
    INFO(answer.code << " " << answer.text);
    CHECK(answer.code == "APPORTION_OUT_OF_MEMORY");
    CHECK(answer.text.find("device") != std::string::npos);
    CHECK(broker.job("a").job.charged == 0);
    TestBroker::check_sums(broker.status());
    broker.device().clear_fault("cuMemCreate");
    REQUIRE(eventually([&] { return broker.status().broker.totals.in_transit == 0; }));
    broker.wait_footprint(before);
    const std::uint64_t block = std::stoull(client.must(std::string(how) + " " + bytes(64_MiB)));
    client.write(block, 64_MiB, 1);
    CHECK(client.check(block, 64_MiB, 1) == 64_MiB);
    CHECK(broker.status().broker.restarts == 0);
  }
}

TEST_CASE("F33: whichever driver call of a growth fails, on either side, nothing stays behind") {
  BrokerOptions options = two_jobs("all");
  // The helper, which tries again, is not the subject here.
  options.jobs = "[jobs.a]\nshare = \"0.5\"\nscrub = \"never\"\n";
  TestBroker broker(options);
  TestClient client(broker);
  client.attach("a");
  // A first growth, so that what a first use makes for good is there.
  client.free(client.alloc(64_MiB));
  client.trim();
  const TestBroker::Footprint before = broker.footprint();
  const std::size_t fds = std::stoul(client.must("fds"));
  for (const char* function :
       {"cuMemExportToShareableHandle", "cuMemImportFromShareableHandle", "cuMemMap", "cuMemSetAccess"}) {
    for (const std::uint64_t nth : {1, 2, 4}) {
      INFO(function << ", call " << nth);
      broker.device().set_fault(function, {.code = kUnknown, .first = nth, .count = 1});
      const std::uint64_t calls = broker.device().calls(function);
      const TestClient::Answer answer = client.ask("alloc " + bytes(160_MiB));
      INFO(answer.code << " " << answer.text);
      const bool failed = broker.device().calls(function) >= calls + nth;
      CHECK(answer.ok == !failed);
      if (failed) CHECK((answer.code == "APPORTION_DRIVER" || answer.code == "APPORTION_OUT_OF_MEMORY"));
      broker.device().clear_faults();
      if (answer.ok) client.free(std::stoull(answer.text));
      client.trim();
      REQUIRE(eventually([&] {
        const StatusAnswer status = broker.status();
        return status.broker.totals.charged == 0 && status.broker.totals.in_transit == 0;
      }));
      TestBroker::check_sums(broker.status());
      broker.wait_footprint(before);
      CHECK(std::stoul(client.must("fds")) == fds);
      CHECK(client.ask("verify").ok);
      CHECK(broker.status().broker.restarts == 0);
    }
  }
  const std::uint64_t block = client.alloc(160_MiB);
  client.write(block, 160_MiB, 1);
  CHECK(client.check(block, 160_MiB, 1) == 160_MiB);
  CHECK(broker.device().violations() == 0);
}

TEST_CASE("F33: a chunk that cannot be exported to the keeper is unmade, and its request refused") {
  for (const auto& [reserve, how] : {std::pair{"all", "exact"}, std::pair{"leased", "alloc"}}) {
    INFO(reserve << " " << how);
    TestBroker broker(two_jobs(reserve));
    TestClient client(broker);
    client.attach("a");
    const TestBroker::Footprint before = broker.footprint();
    const pid_t pid = broker.broker_pid();
    broker.device().set_fault("cuMemExportToShareableHandle", {.code = kUnknown, .first = 1, .count = 1});
    const TestClient::Answer answer = client.ask(std::string(how) + " " + bytes(64_MiB));
    INFO(answer.code << " " << answer.text);
    CHECK_FALSE(answer.ok);
    broker.device().clear_faults();
    CHECK(broker.broker_pid() == pid);
    REQUIRE(eventually([&] {
      const StatusAnswer status = broker.status();
      return status.broker.totals.charged == 0 && status.broker.totals.in_transit == 0;
    }));
    broker.wait_footprint(before);
    client.must(std::string(how) + " " + bytes(64_MiB));
  }
}
