// Field cases about memory itself: where it lies, how much of it is left, and who gets it when two ask at
// once.
#include <algorithm>
#include <array>
#include <atomic>
#include <thread>

#include "tests/replay/worker.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/test_client.hpp"

using namespace apportion;
using namespace apportion::testing;

TEST_CASE("R6: 11 GiB, many of 16 MiB and again 11 GiB fit into a job of 21 GiB: free chunks are stitched") {
  BrokerOptions options;
  options.device = 24_GiB;
  options.broker = "pool = \"21GiB\"\n";
  options.jobs = "[jobs.a]\nshare = \"1.0\"\n";
  TestBroker broker(options);
  TestClient client(broker);
  client.attach("a");
  client.free(client.alloc(11_GiB));
  std::vector<std::uint64_t> small;
  for (int i = 0; i < 352; ++i)
    small.push_back(client.alloc(16_MiB));
  const std::uint64_t large = client.alloc(11_GiB);
  client.write(large, 11_GiB, 1);
  for (std::size_t i = 0; i < small.size(); ++i)
    client.write(small[i], 16_MiB, 2 + i);
  CHECK(client.check(large, 11_GiB, 1) == 11_GiB);
  for (std::size_t i = 0; i < small.size(); ++i)
    CHECK(client.check(small[i], 16_MiB, 2 + i) == 16_MiB);
  CHECK(broker.job("a").job.charged < (17_GiB).value);  // 16.5 GiB live, and what a chunk rounds up
  client.must("verify");
}

TEST_CASE("R6: PyTorch's fragmenting run, a block of the arena for each tensor, fits through the broker") {
  BrokerOptions options;
  options.device = 24_GiB;
  options.broker = "pool = \"21GiB\"\n";
  options.jobs = "[jobs.a]\nshare = \"1.0\"\n";
  TestBroker broker(options);
  replay::Worker worker(
      {"--device", "sim:24GiB", "--framework", "pytorch-expandable", "--run", "fragmenting", "--job", "a"},
      {{"APPORTION_SOCKET", broker.socket()}, {"CUDASIM_DIR", broker.device_folder()}});
  worker.expect("ready");
  worker.go();
  CHECK(worker.expect("told")["free_bytes"] == (21_GiB).value);
  worker.go();
  const auto result = worker.expect("result");
  INFO(result.dump());
  CHECK(result["ok"] == true);
  CHECK(result["got_bytes"] == (11_GiB + 5632_MiB).value);
  CHECK(worker.finish() == 0);
}

TEST_CASE("R11: thousands of allocations take no more addresses than a session's first one") {
  BrokerOptions options;
  options.jobs = "[jobs.a]\nshare = \"1.0\"\n";
  TestBroker broker(options);
  TestClient client(broker);
  client.attach("a");
  client.free(client.alloc(1_MiB));
  client.free(client.alloc(64_MiB));
  const auto reserved = [&] {
    Bytes sum;
    for (const cudasim::CallRecord& record : broker.device().records(0))
      if (record.pid == client.pid() && record.function == "cuMemAddressReserve") sum += Bytes{record.a};
    return sum;
  };
  const Bytes before = reserved();
  CHECK(before.value > 0);
  CHECK(before <= 8_GiB * 4);  // a small multiple of the device's total
  for (int i = 0; i < 2000; ++i) {
    const std::uint64_t block = client.alloc(i % 3 == 0 ? 512_KiB : Bytes{(i % 40 + 1) * (1_MiB).value});
    if (i % 10 != 0) client.free(block);
  }
  client.trim();
  CHECK(reserved() == before);
}

TEST_CASE("C14: the second process of a job sees what the first one left: 424 MiB of 1 GiB") {
  BrokerOptions options;
  options.device = 3_GiB;
  options.broker = "pool = \"2GiB\"\nchunk = \"2MiB\"\n";
  options.jobs = "[jobs.a]\nguarantee = \"1GiB\"\nlimit = \"1GiB\"\n";
  TestBroker broker(options);
  TestClient first(broker);
  first.attach("a");
  first.alloc(600_MiB);
  TestClient second(broker);
  second.attach("a");
  const auto told = second.info();
  CHECK(told.at("total") == 1_GiB);
  CHECK(told.at("free") == 424_MiB);
  // And that much is really to be had, and no more.
  second.alloc(424_MiB);
  CHECK(second.ask("alloc " + std::to_string((2_MiB).value)).code == "APPORTION_QUOTA");
}

TEST_CASE("K1: two elastic caches that see one snapshot and both grow are never granted more than there is") {
  BrokerOptions options;
  options.jobs = "[jobs.a]\nshare = \"0.25+\"\n[jobs.b]\nshare = \"0.25+\"\n";
  TestBroker broker(options);
  const Bytes pool = broker.pool();
  std::array<TestClient, 2> caches{TestClient(broker), TestClient(broker)};
  caches[0].attach("a", true);
  caches[1].attach("b", true);
  // Both have read the same: all of the pool beside the other's guarantee is free.
  CHECK(caches[0].info()["free"] == caches[1].info()["free"]);
  const unsigned count = rounds(50, 1000);
  // Each wants more than half: at the barrier both ask, and both cannot be served.
  const Bytes wish{pool.value / 10 * 6};
  const std::string barrier = broker.scratch().path() + "/barrier";
  for (TestClient& cache : caches)
    cache.send("rounds " + std::to_string(count) + " " + std::to_string(wish.value) + " 2 " + barrier);
  Bytes most;
  std::array<std::optional<TestClient::Answer>, 2> answers;
  std::atomic<bool> done = false;
  std::thread waiting([&] {
    for (std::size_t i = 0; i < 2; ++i)
      answers[i] = caches[i].answer();
    done = true;
  });
  do {
    const StatusAnswer status = broker.status();
    TestBroker::check_sums(status);
    Bytes charged;
    for (const wire::JobRow& row : status.jobs)
      charged += Bytes{row.job.charged};
    most = std::max(most, charged);
  } while (!done);  // each answer has its deadline
  waiting.join();
  CHECK(most <= pool);
  CHECK(most.value != 0);  // samples fell into rounds
  CHECK(broker.device().census().overlap_bytes == 0);
  std::uint64_t granted = 0;
  for (const auto& answer : answers) {
    REQUIRE(answer.has_value());
    INFO(answer->text);
    CHECK(answer->ok);
    granted += std::stoull(answer->text);
  }
  CHECK(granted >= 1);
  CHECK(granted <= count);  // never both in one round
}
