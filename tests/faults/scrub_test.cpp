// Memory passes between jobs and users, in the simulator's dirty mode: what is read there is what was left.
#include <signal.h>

#include <random>

#include "tests/support/catch.hpp"
#include "tests/support/test_client.hpp"

using namespace apportion;
using namespace apportion::testing;

namespace {

constexpr uid_t kOne = 4244;
constexpr uid_t kOther = 4245;
constexpr const char* kMemset = "cuMemsetD8Async";

std::string bytes(Bytes size) {
  return std::to_string(size.value);
}

// A pool of four chunks that everybody wants all of.
BrokerOptions small_pool(const std::string& broker, const std::string& job) {
  BrokerOptions options;
  options.device = 4_GiB;
  options.dirty = true;
  options.broker = "pool = \"128MiB\"\n" + broker;
  for (const char* name : {"a", "b", "c"})
    options.jobs += std::string("[jobs.") + name + "]\n" + job;
  return options;
}

// All that the client reads there and that is not its own.
std::string strange(TestClient& client, std::uint64_t block, Bytes size, unsigned own) {
  std::string seen = client.must("peek " + std::to_string(block) + " " + bytes(size));
  return seen == std::to_string(own) ? "" : seen;
}

}  // namespace

TEST_CASE("F39: whoever takes, returns or dies, in any order: nobody reads a byte that another left") {
  const Watchdog watchdog(std::chrono::seconds(600));
  const bool uids = can_change_uid();
  std::mt19937 random(seed());
  for (const char* broker_keys : {"", "reserve = \"leased\"\n"}) {
    for (const char* job_keys :
         {"", "return = \"trusted\"\n", "return = \"strict\"\n", "scrub = \"always\"\n"}) {
      INFO(broker_keys << job_keys);
      TestBroker broker(small_pool(broker_keys, job_keys));
      for (unsigned i = 0; i < rounds(6, 60); ++i) {
        const unsigned job = random() % 3;
        const bool other = uids && random() % 2 == 0;
        const unsigned own = 10 + 2 * job + (other ? 1 : 0);  // the value that this job of this user writes
        TestClient client(broker,
                          {.uid = uids ? std::optional(other ? kOther : kOne) : std::optional<uid_t>()});
        client.attach(std::string(1, "abc"[job]));
        const Bytes size = random() % 4 == 0 ? 48_MiB : 32_MiB * (1 + random() % 4);
        const bool exact = random() % 4 == 0;
        std::uint64_t block = 0;
        REQUIRE(eventually([&] {  // memory of the dead comes back in its time
          const TestClient::Answer answer = client.ask((exact ? "exact " : "alloc ") + bytes(size));
          if (answer.ok) block = std::stoull(answer.text);
          return answer.ok;
        }));
        CHECK(strange(client, block, size, own) == "");
        client.must("stamp " + std::to_string(block) + " " + bytes(size) + " " + std::to_string(own));
        if (random() % 4 == 0) {
          client.kill();
          continue;
        }
        client.free(block);
        if (random() % 2 == 0) client.trim();
        client.detach();
      }
      broker.wait_idle();
      TestBroker::check_sums(broker.status());
      CHECK(broker.device().violations() == 0);
    }
  }
}

TEST_CASE("F39: a job that says never reads nothing that a killed client of another job left") {
  const Watchdog watchdog(std::chrono::seconds(120));
  BrokerOptions options = small_pool("", "");
  options.jobs = "[jobs.a]\n[jobs.b]\nscrub = \"never\"\n";
  TestBroker broker(options);
  TestClient killed(broker);
  killed.attach("a");
  const std::uint64_t left = killed.alloc(128_MiB);
  killed.must("stamp " + std::to_string(left) + " " + bytes(128_MiB) + " 42");
  killed.kill();
  TestClient next(broker);
  next.attach("b");
  std::uint64_t block = 0;
  REQUIRE(eventually([&] {
    const TestClient::Answer answer = next.ask("alloc " + bytes(128_MiB));
    if (answer.ok) block = std::stoull(answer.text);
    return answer.ok;
  }));
  CHECK(strange(next, block, 128_MiB, 0) == "");
}

TEST_CASE("F39: with scrub = never nothing is overwritten, no helper starts, and what is left is read") {
  TestBroker broker(small_pool("", "scrub = \"never\"\n"));
  TestClient client(broker);
  client.attach("a");
  const std::uint64_t block = client.alloc(128_MiB);
  CHECK(strange(client, block, 128_MiB, 0) == "202");  // the simulator's canary: the instrument sees
  CHECK(broker.device().calls(kMemset) == 0);
  CHECK_FALSE(broker.helper_pid().has_value());
}

TEST_CASE("scrub: the same job and user get their memory back without a driver call of a helper") {
  TestBroker broker(small_pool("", ""));
  TestClient client(broker);
  client.attach("a");
  client.free(client.alloc(128_MiB));
  // On a machine that is slow enough, idle time begins between two commands.
  bool none = false;
  for (int i = 0; i < 10 && !none; ++i) {
    client.trim();
    const std::uint64_t before = broker.device().calls(kMemset);
    client.free(client.alloc(128_MiB));
    none = broker.device().calls(kMemset) == before;
  }
  CHECK(none);
}

TEST_CASE("scrub: free memory is overwritten ahead, then the helper ends and its context's memory is back") {
  TestBroker broker(small_pool("", ""));
  TestClient one(broker);
  one.attach("a");
  const std::uint64_t used_before = broker.device().used_bytes(0);
  const std::uint64_t block = one.alloc(32_MiB);
  const std::optional<pid_t> helper = broker.helper_pid();
  REQUIRE(helper.has_value());
  bool shown = false;
  for (const wire::HolderRow& row : broker.status().holders) {
    if (row.pid != static_cast<std::uint32_t>(*helper)) continue;
    shown = row.kind == static_cast<std::uint32_t>(wire::HolderKind::helper) && row.bytes > 0;
  }
  CHECK(shown);
  CHECK(broker.status().broker.totals.foreign == 0);  // it is the broker's own
  CHECK(broker.logged("event=helper what=started pid=" + std::to_string(*helper)));
  REQUIRE(eventually([&] { return !broker.helper_pid().has_value() && !exists(*helper); }));
  const std::uint64_t contexts = broker.device().used_bytes(0) - used_before;
  CHECK(contexts <= 4ULL * 128 * 1024 * 1024);  // the client's own, not the helper's
  const std::uint64_t before = broker.device().calls(kMemset);
  TestClient two(broker);
  two.attach("b");
  CHECK(strange(two, two.alloc(96_MiB), 96_MiB, 0) == "");
  CHECK(broker.device().calls(kMemset) == before);
  CHECK_FALSE(broker.helper_pid().has_value());
  one.free(block);
}

TEST_CASE("F38, F52: a helper that is killed in the middle of a scrub: the chunk is overwritten again") {
  for (const bool after : {false, true}) {
    TestBroker broker(small_pool("", ""));
    TestClient client(broker);
    client.attach("a");
    cudasim::Fault fault;
    (after ? fault.signal_after : fault.signal_before) = SIGKILL;
    broker.device().set_fault(kMemset, fault);
    const std::uint64_t block = client.alloc(128_MiB);
    CHECK(strange(client, block, 128_MiB, 0) == "");
    CHECK(broker.device().calls(kMemset) >= 2);
    CHECK(broker.logged("event=lost what=helper"));
    CHECK(broker.logged("how=\"signal 9\""));
    TestBroker::check_sums(broker.status());
    CHECK(broker.device().violations() == 0);
  }
}

TEST_CASE(
    "F38: helpers that die every time: the request is refused with the reason, and nothing is granted") {
  TestBroker broker(small_pool("", ""));
  TestClient client(broker);
  client.attach("a");
  cudasim::Fault fault;
  fault.signal_after = SIGKILL;
  fault.count = cudasim::Fault::kForEver;
  broker.device().set_fault(kMemset, fault);
  const TestClient::Answer answer = client.ask("alloc " + bytes(128_MiB));
  CHECK(answer.code == "APPORTION_DRIVER");
  CHECK(answer.text.find("could not be overwritten") != std::string::npos);
  CHECK(answer.text.find("the helper died (signal 9)") != std::string::npos);
  CHECK(broker.job("a").job.charged == 0);
  CHECK(broker.device().calls(kMemset) == 3);
  TestBroker::check_sums(broker.status());
  CHECK(broker.logged("event=scrub_failed"));
  broker.device().clear_faults();
  const std::uint64_t block = client.alloc(128_MiB);
  CHECK(strange(client, block, 128_MiB, 0) == "");
}

TEST_CASE("F38: a driver that refuses in the helper: asked again by a new helper with a new context") {
  TestBroker broker(small_pool("", ""));
  TestClient client(broker);
  client.attach("a");
  broker.device().set_fault(kMemset, {.code = 700, .first = 1, .count = 1});
  const std::uint64_t block = client.alloc(128_MiB);
  CHECK(strange(client, block, 128_MiB, 0) == "");
  client.free(block);
}

TEST_CASE("F37: no room for the helper's context: the request is refused and says so; later it is served") {
  TestBroker broker(small_pool("", ""));
  TestClient client(broker);
  client.attach("a");
  client.must("context");
  const std::uint64_t free = (4_GiB).value - broker.device().used_bytes(0);
  broker.device().set_stranger_bytes(0, free - (8_MiB).value);
  const TestClient::Answer answer = client.ask("alloc " + bytes(128_MiB));
  CHECK(answer.code == "APPORTION_DRIVER");
  CHECK(answer.text.find("no context: cuDevicePrimaryCtxRetain") != std::string::npos);
  CHECK(broker.job("a").job.charged == 0);
  broker.device().set_stranger_bytes(0, 0);
  client.alloc(128_MiB);
}

TEST_CASE("F11: the helper ends with its broker") {
  TestBroker broker(small_pool("", ""));
  TestClient client(broker);
  client.attach("a");
  client.alloc(32_MiB);
  const std::optional<pid_t> helper = broker.helper_pid();
  REQUIRE(helper.has_value());
  ::kill(broker.broker_pid(), SIGKILL);
  CHECK(eventually([&] { return !exists(*helper); }));
}
