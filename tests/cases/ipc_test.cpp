// A job with transport = "ipc", from end to end: programs that know nothing of it, a broker and its helper.
#include <signal.h>

#include "tests/support/catch.hpp"
#include "tests/support/test_client.hpp"

using namespace apportion;
using namespace apportion::testing;

namespace {

BrokerOptions slab_pool(const std::string& job = "") {
  BrokerOptions options;
  options.device = 4_GiB;
  options.dirty = true;
  options.broker = "pool = \"512MiB\"\n";
  options.jobs = "[jobs.slabs]\ntransport = \"ipc\"\n" + job + "[jobs.chunks]\n";
  return options;
}

}  // namespace

TEST_CASE("ipc: two programs of a job use slabs as others use chunks, and all of it comes back") {
  TestBroker broker(slab_pool());
  {
    TestClient first(broker);
    TestClient second(broker);
    first.attach("slabs");
    second.attach("slabs");
    CHECK(first.info()["transport"] == 1_B);
    const std::uint64_t large = first.alloc(100_MiB);
    const std::uint64_t small = first.alloc(4_KiB);
    const std::uint64_t exact = second.exact(34_MiB);
    first.write(large, 100_MiB, 1);
    first.write(small, 4_KiB, 2);
    second.write(exact, 34_MiB, 3);
    CHECK(first.check(large, 100_MiB, 1) == 100_MiB);
    CHECK(first.check(small, 4_KiB, 2) == 4_KiB);
    CHECK(second.check(exact, 34_MiB, 3) == 34_MiB);
    CHECK(broker.job("slabs").job.charged == (100_MiB + 32_MiB + 34_MiB).value);
    TestBroker::check_sums(broker.status());
    first.must("verify");
    first.free(large);
    // What is cached is used again, without another slab.
    const std::uint64_t again = first.alloc(60_MiB);
    CHECK(broker.job("slabs").job.charged == (100_MiB + 32_MiB + 34_MiB).value);
    first.free(again);
    CHECK(first.trim() == 100_MiB);
    second.free(exact);
    CHECK(broker.job("slabs").job.charged == (32_MiB).value);
    first.detach();
    second.detach();
  }
  broker.wait_idle();
  CHECK(broker.device().violations() == 0);
}

TEST_CASE("ipc: a program that ends with slabs in use leaves the pool whole") {
  TestBroker broker(slab_pool());
  TestClient client(broker);
  client.attach("slabs");
  const std::uint64_t block = client.alloc(200_MiB);
  client.write(block, 200_MiB, 1);
  client.exact(10_MiB);
  client.kill();
  broker.wait_idle();
  CHECK(broker.device().violations() == 0);
  // And another gets all of it, as chunks.
  TestClient next(broker);
  next.attach("chunks");
  const std::uint64_t all = next.alloc(512_MiB);
  CHECK(next.must("peek " + std::to_string(all) + " " + std::to_string((512_MiB).value)) == "");
}

TEST_CASE("ipc: a job reaches its whole pool, is refused beyond it with reasons, and idle slabs make room") {
  // Within its guarantee, so that it may count on what is on its way from slabs to free bytes.
  TestBroker broker(slab_pool("share = \"1.0\"\n"));
  TestClient client(broker);
  client.attach("slabs");
  std::vector<std::uint64_t> blocks;
  for (int i = 0; i < 8; ++i)
    blocks.push_back(client.alloc(64_MiB));
  const TestClient::Answer refused = client.ask("alloc " + std::to_string((1_MiB).value));
  INFO(refused.text);
  CHECK(refused.code == "APPORTION_QUOTA");
  for (const std::uint64_t block : blocks)
    client.free(block);
  const std::uint64_t whole = client.alloc(512_MiB);
  client.write(whole, 512_MiB, 4);
  CHECK(client.check(whole, 512_MiB, 4) == 512_MiB);
  TestBroker::check_sums(broker.status());
  CHECK(broker.device().violations() == 0);
}

TEST_CASE(
    "F52: programs hear that their slabs are gone with the helper, free them, and go on with new ones") {
  TestBroker broker(slab_pool());
  TestClient client(broker);
  TestClient other(broker);
  client.attach("slabs");
  other.attach("chunks");
  const std::uint64_t block = client.alloc(40_MiB);
  const std::uint64_t small = client.alloc(4_KiB);
  const std::uint64_t chunks = other.alloc(32_MiB);
  other.write(chunks, 32_MiB, 7);
  const std::optional<pid_t> helper = broker.helper_pid();
  REQUIRE(helper.has_value());
  ::kill(*helper, SIGKILL);
  // The session's thread hears it, so that even what would fit into a lost slab is refused.
  TestClient::Answer told;
  REQUIRE(eventually([&] {
    told = client.ask("alloc 4096");
    if (told.ok) client.must("free " + told.text);
    return !told.ok;
  }));
  INFO(told.text);
  CHECK(told.code == "APPORTION_DISCONNECTED");
  CHECK(told.text.find("the broker's helper died (signal 9)") != std::string::npos);
  client.free(block);
  CHECK(client.ask("alloc 4096").code == "APPORTION_DISCONNECTED");
  client.free(small);
  const std::uint64_t next = client.alloc(40_MiB);
  client.write(next, 40_MiB, 8);
  CHECK(client.check(next, 40_MiB, 8) == 40_MiB);
  client.must("verify");
  CHECK(other.check(chunks, 32_MiB, 7) == 32_MiB);
  client.detach();
  other.detach();
  broker.wait_idle();
  CHECK(broker.device().violations() == 0);
}

TEST_CASE("ipc: a forked child has nothing of the session, and keeps nothing of it from coming back") {
  TestBroker broker(slab_pool());
  TestClient client(broker);
  client.attach("slabs");
  client.alloc(64_MiB);
  CHECK(client.must("forkuse").find("APPORTION_NOT_ATTACHED") != std::string::npos);
  client.detach();
  broker.wait_idle();
  CHECK(broker.device().violations() == 0);
}
