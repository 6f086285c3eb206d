// R1: processes that take memory the way JAX does, started in every order and interleaving through the
// broker.
#include <algorithm>
#include <numeric>
#include <random>
#include <set>

#include "tests/replay/worker.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/test_broker.hpp"

using namespace apportion;
using namespace apportion::testing;

namespace {

struct Got {
  std::uint64_t told = 0;
  std::uint64_t wanted = 0;
  std::uint64_t got = 0;
  bool ok = false;
  auto operator<=>(const Got&) const = default;
};

Got got_of(const nlohmann::json& line) {
  return {line["told_bytes"], line["wanted_bytes"], line["got_bytes"], line["ok"]};
}

// Four racers, each of a job of its own; not started yet, in what the gates are concerned.
class Race {
 public:
  explicit Race(const TestBroker& broker) {
    const std::string size = std::to_string((8_GiB) / 1_MiB) + "MiB";
    for (int i = 0; i < 4; ++i) {
      racers_.push_back(std::make_unique<replay::Worker>(
          std::vector<std::string>{"--device", "sim:" + size, "--job", "racer-" + std::to_string(i),
                                   "--first-request", std::to_string((256_MiB).value)},
          std::map<std::string, std::string>{{"APPORTION_SOCKET", broker.socket()},
                                             {"CUDASIM_DIR", broker.device_folder()}}));
    }
    for (auto& racer : racers_)
      racer->expect("ready");
  }
  replay::Worker& operator[](std::size_t i) { return *racers_[i]; }

  // They check what they hold once more, and end.
  void finish(const std::vector<Got>& results) {
    for (std::size_t i = 0; i < 4; ++i) {
      racers_[i]->close_gate();
      CHECK(racers_[i]->expect("end")["kept_bytes"] == results[i].got);
      CHECK(racers_[i]->finish() == 0);
    }
  }

 private:
  std::vector<std::unique_ptr<replay::Worker>> racers_;
};

BrokerOptions four_jobs() {
  BrokerOptions options;
  for (int i = 0; i < 4; ++i)
    options.jobs += "[jobs.racer-" + std::to_string(i) + "]\nshare = \"0.25\"\n";
  return options;
}

void expect_fair(const std::vector<Got>& results, std::uint64_t guarantee) {
  for (const Got& each : results) {
    CHECK(each.told == guarantee);
    CHECK(each.got == each.wanted);
    CHECK(each.wanted == round_up(Bytes{guarantee / 4 * 3}, 2_MiB).value);
    CHECK(each.ok);
  }
}

}  // namespace

TEST_CASE("R1: the start race gives every process .75 of its guarantee, the same in all 24 orders") {
  TestBroker broker(four_jobs());
  const std::uint64_t guarantee = broker.job("racer-0").job.guarantee;
  std::set<std::vector<Got>> distinct;
  std::vector<std::size_t> order{0, 1, 2, 3};
  do {
    Race race(broker);
    std::vector<Got> results(4);
    for (const std::size_t i : order) {
      race[i].go();
      race[i].expect("told");
      race[i].go();
      results[i] = got_of(race[i].expect("result"));
    }
    expect_fair(results, guarantee);
    CHECK(broker.device().census().overlap_bytes == 0);
    TestBroker::check_sums(broker.status());
    distinct.insert(results);
    race.finish(results);
  } while (std::next_permutation(order.begin(), order.end()));
  CHECK(distinct.size() == 1);
  broker.wait_idle();
}

TEST_CASE("R1: the start race gives the same in any interleaving of reading and taking, and all at once") {
  TestBroker broker(four_jobs());
  const std::uint64_t guarantee = broker.job("racer-0").job.guarantee;
  std::mt19937 random(seed());
  std::set<std::vector<Got>> distinct;
  for (unsigned i = 0; i < rounds(10, 100); ++i) {
    Race race(broker);
    std::vector<Got> results(4);
    // Eight steps, each racer's two in its own order.
    std::vector<std::size_t> steps{0, 0, 1, 1, 2, 2, 3, 3};
    std::shuffle(steps.begin(), steps.end(), random);
    const bool at_once = i % 2 == 0;
    std::array<int, 4> done{};
    for (const std::size_t step : steps) {
      race[step].go();
      if (!at_once && done[step]++ == 0) race[step].expect("told");
      if (!at_once && done[step] == 2) results[step] = got_of(race[step].expect("result"));
    }
    for (std::size_t racer = 0; at_once && racer < 4; ++racer) {
      race[racer].expect("told");
      results[racer] = got_of(race[racer].expect("result"));
    }
    for (std::size_t racer = 0; !at_once && racer < 4; ++racer)
      if (results[racer].told == 0) results[racer] = got_of(race[racer].expect("result"));
    expect_fair(results, guarantee);
    CHECK(broker.device().census().overlap_bytes == 0);
    distinct.insert(results);
    race.finish(results);
  }
  CHECK(distinct.size() == 1);
}
