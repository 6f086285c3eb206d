// F56: what lies idle in one process of a job is there for another of it, before anything is refused.
#include <signal.h>

#include "tests/support/catch.hpp"
#include "tests/support/test_client.hpp"

using namespace apportion;
using namespace apportion::testing;

namespace {

// A job of four chunks.
BrokerOptions one_job(const std::string& job = "") {
  BrokerOptions options;
  options.device = 4_GiB;
  options.broker = "pool = \"256MiB\"\nreclaim_deadline = \"500ms\"\n";
  options.jobs = "[jobs.a]\nlimit = \"128MiB\"\nguarantee = \"128MiB\"\n" + job;
  return options;
}

std::string bytes(Bytes size) {
  return std::to_string(size.value);
}

}  // namespace

TEST_CASE(
    "F56: chunks that lie idle in a process that makes no call are brought back for another of its job") {
  const Watchdog watchdog(std::chrono::seconds(120));
  for (const char* keys : {"", "return = \"strict\"\n", "return = \"trusted\"\n"}) {
    INFO(keys);
    TestBroker broker(one_job(keys));
    TestClient idle(broker);
    idle.attach("a");
    const std::uint64_t kept = idle.alloc(8_MiB);
    idle.free(idle.alloc(96_MiB));  // and from here on it makes no call
    TestClient needs(broker);
    needs.attach("a");
    const std::uint64_t block = needs.alloc(64_MiB);
    CHECK(block != 0);
    idle.free(kept);  // it goes on as if nothing had been
    TestBroker::check_sums(broker.status());
    CHECK(broker.device().violations() == 0);
  }
}

TEST_CASE("F56: a process that uses all it has is asked, and the refusal says that it had no more") {
  const Watchdog watchdog(std::chrono::seconds(120));
  TestBroker broker(one_job());
  TestClient full(broker);
  full.attach("a");
  full.alloc(128_MiB);
  TestClient needs(broker);
  needs.attach("a");
  const TestClient::Answer answer = needs.ask("alloc " + bytes(32_MiB));
  CHECK_FALSE(answer.ok);
  CHECK(answer.text.find("asked back 32 MiB of pid " + std::to_string(full.pid()) + ", it had no more") !=
        std::string::npos);
}

TEST_CASE("F56: a process that is stopped holds nobody up longer than its deadline, and is asked no more") {
  const Watchdog watchdog(std::chrono::seconds(120));
  TestBroker broker(one_job());
  TestClient stopped(broker);
  stopped.attach("a");
  stopped.free(stopped.alloc(128_MiB));
  REQUIRE(::kill(stopped.pid(), SIGSTOP) == 0);
  TestClient needs(broker);
  needs.attach("a");
  const TestClient::Answer first = needs.ask("alloc " + bytes(32_MiB));
  CHECK_FALSE(first.ok);
  CHECK(first.text.find("no answer in time") != std::string::npos);
  const TestClient::Answer second = needs.ask("alloc " + bytes(32_MiB));
  CHECK_FALSE(second.ok);
  CHECK(second.text.find("asked back") == std::string::npos);
  REQUIRE(::kill(stopped.pid(), SIGCONT) == 0);
  CHECK(eventually([&] { return needs.ask("alloc " + bytes(32_MiB)).ok; }));
}

TEST_CASE("F01: a program that is killed at its limit and started again waits for its memory, and gets it") {
  const Watchdog watchdog(std::chrono::seconds(120));
  TestBroker broker(one_job());
  for (unsigned i = 0; i < rounds(3, 20); ++i) {
    TestClient client(broker);
    client.attach("a");
    CHECK(client.alloc(128_MiB) != 0);  // at once: no second try
    client.kill();
  }
}
