// R4: two vLLM that size their caches at the same time, in every interleaving of their steps.
#include <algorithm>
#include <array>
#include <random>
#include <set>

#include "tests/replay/worker.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/test_broker.hpp"

using namespace apportion;
using namespace apportion::testing;

namespace {

constexpr std::array<const char*, 4> kSteps{"told", "step", "step", "result"};
constexpr Bytes kWeights = 1_GiB;
constexpr Bytes kActivations = 256_MiB;

BrokerOptions two_jobs() {
  BrokerOptions options;
  options.jobs = "[jobs.a]\nshare = \"0.5\"\n[jobs.b]\nshare = \"0.5\"\n";
  return options;
}

std::unique_ptr<replay::Worker> vllm(const TestBroker& broker, const std::string& job) {
  auto worker = std::make_unique<replay::Worker>(
      std::vector<std::string>{"--device", "sim:8GiB", "--framework", "vllm", "--job", job, "--weights",
                               std::to_string(kWeights.value), "--activations",
                               std::to_string(kActivations.value)},
      std::map<std::string, std::string>{{"APPORTION_SOCKET", broker.socket()},
                                         {"CUDASIM_DIR", broker.device_folder()}});
  worker->expect("ready");
  return worker;
}

// What each found to be left for its cache. `order`: whose step is next, four of 0 and four of 1.
std::vector<std::int64_t> caches(const TestBroker& broker, const std::vector<std::size_t>& order) {
  const std::array workers{vllm(broker, "a"), vllm(broker, "b")};
  std::array<std::size_t, 2> done{};
  std::vector<std::int64_t> caches(2);
  for (const std::size_t next : order) {
    workers[next]->go();
    const auto line = workers[next]->expect(kSteps[done[next]++]);
    INFO(line.dump());
    CHECK(line["error"].is_null());
    if (line["event"] != "result") continue;
    CHECK(line["ok"] == true);
    caches[next] = line["cache_bytes"];
  }
  CHECK(broker.device().census().overlap_bytes == 0);
  TestBroker::check_sums(broker.status());
  for (const auto& worker : workers)
    CHECK(worker->finish() == 0);
  broker.wait_idle();
  return caches;
}

}  // namespace

TEST_CASE("R4: two vLLM have the caches of one after the other in every interleaving of their steps") {
  TestBroker broker(two_jobs());
  const std::uint64_t guarantee = broker.job("a").job.guarantee;
  std::vector<std::size_t> order{0, 0, 0, 0, 1, 1, 1, 1};
  const std::vector<std::int64_t> alone = caches(broker, order);
  const auto share = static_cast<std::int64_t>(static_cast<double>(guarantee) * 0.9);
  for (const std::int64_t cache : alone) {
    const std::int64_t ideal = share - static_cast<std::int64_t>((kWeights + kActivations).value);
    CHECK(cache <= ideal + 1);
    CHECK(cache > ideal - static_cast<std::int64_t>((2 * broker.chunk().value)));
  }
  std::vector<std::vector<std::size_t>> orders;
  while (std::next_permutation(order.begin(), order.end()))
    orders.push_back(order);
  CHECK(orders.size() == 69);
  std::mt19937 random(seed());
  std::shuffle(orders.begin(), orders.end(), random);
  orders.resize(rounds(12, 69));
  for (const auto& each : orders)
    CHECK(caches(broker, each) == alone);
}

TEST_CASE("R4: a vLLM whose neighbour leaves while it profiles has the same cache") {
  TestBroker broker(two_jobs());
  const std::vector<std::int64_t> alone = caches(broker, {0, 0, 0, 0, 1, 1, 1, 1});
  auto neighbour = vllm(broker, "a");
  for (const char* event : kSteps) {
    neighbour->go();
    neighbour->expect(event);
  }
  auto worker = vllm(broker, "b");
  for (const char* event : {"told", "step"}) {
    worker->go();
    worker->expect(event);
  }
  CHECK(neighbour->finish() == 0);
  worker->go();
  CHECK(worker->expect("step")["cache_bytes"] == alone[1]);
}
