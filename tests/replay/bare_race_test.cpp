// The race on the bare device: four processes that each want 75 % of it, and what start order does to them.
// Sources of the figures: tests/replay/README.md.
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "cudasim/control.hpp"
#include "shm/bytes.hpp"
#include "tests/replay/worker.hpp"
#include "tests/support/catch.hpp"

using namespace apportion;
using apportion::replay::Worker;

namespace {

// An 80 GiB device whose contexts cost 512 MiB, in a folder of its own, and the four racers.
class Race {
 public:
  explicit Race(const std::string& backing) {
    for (auto& racer : racers_)
      racer = std::make_unique<Worker>(
          std::vector<std::string>{"--device", "sim:80GiB", "--backing", backing},
          std::map<std::string, std::string>{{"CUDASIM_DIR", device_.path()}, {"CUDASIM_CONTEXT", "512MiB"}});
    for (auto& racer : racers_)
      racer->expect("ready");
  }
  ~Race() {
    for (auto& racer : racers_)
      racer.reset();
  }
  Race(const Race&) = delete;
  Race& operator=(const Race&) = delete;

  nlohmann::json context(std::size_t i) {
    racers_[i]->go();
    return racers_[i]->expect("told");
  }
  nlohmann::json take(std::size_t i) {
    racers_[i]->go();
    return racers_[i]->expect("result");
  }
  // Nobody has another's memory, and every racer that got some still finds what it wrote in it; then all end.
  void finish(const std::array<nlohmann::json, 4>& results) {
    const cudasim::CensusReport census = device_->census();
    CHECK(census.overlap_bytes == 0);
    CHECK(census.physical_bytes == census.referenced_bytes);
    for (std::size_t i = 0; i < racers_.size(); ++i) {
      CHECK(racers_[i]->finish() == 0);
      CHECK(racers_[i]->expect("end")["kept_bytes"] == results[i]["got_bytes"]);
    }
  }

 private:
  static cudasim::FolderOptions options() {
    cudasim::FolderOptions options;
    options.device_bytes = {(80_GiB).value};
    options.context_bytes = (512_MiB).value;
    return options;
  }

  cudasim::TemporaryFolder device_{options()};
  std::array<std::unique_ptr<Worker>, 4> racers_;
};

// As the figures of the race are given: whole MiB, begun ones counted.
std::uint64_t got_mib(const nlohmann::json& result) {
  return Bytes{result["got_bytes"].get<std::uint64_t>() + (1_MiB).value - 1} / 1_MiB;
}

}  // namespace

TEST_CASE("bare race, one whole process after the other: 61440, 19281 MiB, and two without a context") {
  Race race("mem_alloc");
  std::array<nlohmann::json, 4> results;
  for (std::size_t i = 0; i < 4; ++i) {
    const auto told = race.context(i);
    if (i < 2)
      CHECK(told["told_bytes"] == (80_GiB).value);
    else
      CHECK(told["told_bytes"].is_null());
    results[i] = race.take(i);
  }
  CHECK(got_mib(results[0]) == 61440);
  CHECK(results[0]["ok"] == true);
  CHECK(results[0]["wanted_bytes"] == (60_GiB).value);
  CHECK(got_mib(results[1]) == 19281);
  CHECK(results[1]["ok"] == false);  // a third of what it wanted, and JAX does not say so
  CHECK(results[1]["tries"] == 12);
  for (std::size_t i = 2; i < 4; ++i) {
    CHECK(results[i]["got_bytes"] == 0);
    CHECK(results[i]["ok"] == false);
    CHECK(results[i]["wanted_bytes"].is_null());
    CHECK(results[i]["error"].get<std::string>().find("CUDA_ERROR_OUT_OF_MEMORY") != std::string::npos);
  }
  race.finish(results);
}

TEST_CASE(
    "bare race, all contexts first: 61440, 17353 MiB, and two that find less than their first request") {
  Race race("mem_alloc");
  std::array<nlohmann::json, 4> results;
  for (std::size_t i = 0; i < 4; ++i)
    CHECK(race.context(i)["told_bytes"] == (80_GiB).value);
  for (std::size_t i = 0; i < 4; ++i)
    results[i] = race.take(i);
  CHECK(got_mib(results[0]) == 61440);
  CHECK(got_mib(results[1]) == 17353);
  for (std::size_t i = 2; i < 4; ++i) {
    CHECK(results[i]["got_bytes"] == 0);
    CHECK(results[i]["wanted_bytes"] == (60_GiB).value);
    CHECK(results[i]["error"].get<std::string>().find("CUDA_ERROR_OUT_OF_MEMORY") != std::string::npos);
  }
  race.finish(results);
}

TEST_CASE("bare race over virtual memory calls: the same results as over cuMemAlloc") {
  Race race("vmm");
  std::array<nlohmann::json, 4> results;
  for (std::size_t i = 0; i < 4; ++i) {
    race.context(i);
    results[i] = race.take(i);
  }
  CHECK(got_mib(results[0]) == 61440);
  CHECK(got_mib(results[1]) == 19281);
  CHECK(got_mib(results[2]) == 0);
  CHECK(got_mib(results[3]) == 0);
  race.finish(results);
}

TEST_CASE("bare race: who starts last loses, whoever it is") {
  Race race("mem_alloc");
  std::array<nlohmann::json, 4> results;
  for (const std::size_t i : {3, 2, 1, 0}) {
    race.context(i);
    results[i] = race.take(i);
  }
  CHECK(got_mib(results[3]) == 61440);
  CHECK(got_mib(results[2]) == 19281);
  CHECK(got_mib(results[1]) == 0);
  CHECK(got_mib(results[0]) == 0);
  race.finish(results);
}
