// Field cases about quota: who gets how much, in whatever order they come.
#include "tests/support/catch.hpp"
#include "tests/support/test_client.hpp"

using namespace apportion;
using namespace apportion::testing;

TEST_CASE("R9: two processes of one job have one account") {
  BrokerOptions options;
  options.jobs = "[jobs.a]\nshare = \"0.5\"\n";
  TestBroker broker(options);
  TestClient first(broker);
  TestClient second(broker);
  first.attach("a");
  second.attach("a");
  const Bytes limit = first.info()["limit"];
  const Bytes part{limit.value / 10 * 6};
  first.alloc(part);
  const TestClient::Answer refused = second.ask("alloc " + std::to_string(part.value));
  CHECK(refused.code == "APPORTION_QUOTA");
  CHECK(refused.text.find("pid " + std::to_string(first.pid())) != std::string::npos);
  CHECK(broker.job("a").job.charged == round_up(part, broker.chunk()).value);
  // What is left of the one account is the second's.
  second.alloc(limit - round_up(part, broker.chunk()));
  CHECK(broker.job("a").job.charged == limit.value);
}

TEST_CASE("R2: a greedy process cannot starve its neighbour's libraries or its guarantee") {
  BrokerOptions options;
  options.jobs = "[jobs.greedy]\nshare = \"0.5+\"\n[jobs.small]\nshare = \"0.5\"\n";
  TestBroker broker(options);
  TestClient small(broker);
  small.attach("small");
  TestClient greedy(broker);
  greedy.attach("greedy");
  auto told = greedy.info();
  // What the program in the report did: all that is said to be free, but for 1.5 GiB.
  greedy.must("context");
  const Bytes first = told["free"] - 1536_MiB;
  greedy.alloc(first);
  // And on, until nothing more is to be had.
  for (Bytes piece = 1_GiB; piece >= 32_MiB; piece = Bytes{piece.value / 2}) {
    while (greedy.ask("alloc " + std::to_string(piece.value)).ok) {
    }
  }
  TestBroker::check_sums(broker.status());
  small.must("context");
  const Bytes guarantee = small.info()["guarantee"];
  REQUIRE(guarantee.value > 0);
  const std::uint64_t little = small.alloc(32_MiB);
  small.write(little, 32_MiB, 1);
  const Bytes rest = guarantee - 32_MiB;
  const std::uint64_t much = small.alloc(rest);
  small.write(much, rest, 2);
  CHECK(small.check(much, rest, 2) == rest);
  CHECK(small.check(little, 32_MiB, 1) == 32_MiB);
}

TEST_CASE(
    "R14: a job that is alone reaches the whole pool, and whoever waits for its guarantee is told who holds "
    "it") {
  BrokerOptions options;
  options.jobs = "[jobs.a]\nshare = \"0.5+\"\n[jobs.b]\nshare = \"0.5\"\n";
  TestBroker broker(options);
  TestClient alone(broker);
  alone.attach("a");
  const Bytes pool = broker.pool();
  const std::uint64_t block = alone.alloc(pool);
  alone.write(block, pool, 1);
  CHECK(alone.check(block, pool, 1) == pool);
  CHECK(broker.job("a").job.charged == pool.value);
  TestClient late(broker);
  late.attach("b");
  const TestClient::Answer refused = late.ask("alloc " + std::to_string((64_MiB).value));
  INFO(refused.text);
  CHECK(refused.code == "APPORTION_QUOTA");
  CHECK(refused.text.find("held by a (pid " + std::to_string(alone.pid())) != std::string::npos);
  // With the memory back, the guarantee is there.
  alone.free(block);
  alone.trim();
  late.alloc(late.info()["guarantee"]);
  const TestClient::Answer again = alone.ask("alloc " + std::to_string(pool.value));
  CHECK(again.code == "APPORTION_QUOTA");
  TestBroker::check_sums(broker.status());
}
