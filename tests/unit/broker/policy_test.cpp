#include "broker/policy.hpp"

#include <random>

#include "tests/support/catch.hpp"
#include "tests/unit/broker/naive.hpp"

using namespace apportion;
using namespace apportion::testing;

namespace {

JobView job(std::uint64_t a, std::uint64_t l, std::uint64_t u, std::uint64_t v = 0) {
  JobView view;
  view.guarantee = view.in_force = {a};
  view.limit = {l};
  view.used = {u};
  view.covered = {v};
  view.arrival = 1;
  return view;
}

std::vector<NaiveJob> naive(const std::vector<JobView>& jobs) {
  std::vector<NaiveJob> out;
  for (const JobView& view : jobs) {
    const auto n = [](Bytes bytes) { return static_cast<std::int64_t>(bytes.value); };
    out.push_back({n(view.in_force), n(view.limit), n(view.covered), n(view.used), view.priority,
                   static_cast<std::int64_t>(view.arrival), view.lend});
  }
  return out;
}

}  // namespace

TEST_CASE("policy: a guarantee is in force while the job has a session, or always") {
  CHECK(in_force(8_B, Hold::attached, 0) == 0_B);
  CHECK(in_force(8_B, Hold::attached, 2) == 8_B);
  CHECK(in_force(8_B, Hold::always, 0) == 8_B);
}

TEST_CASE("policy: cover goes to the higher priority first, then to who came first") {
  std::vector<JobView> jobs{job(4, 9, 0), job(4, 9, 0), job(4, 9, 0)};
  jobs[0].arrival = 3;
  jobs[1].arrival = 1;
  jobs[2].arrival = 2;
  jobs[2].priority = 5;
  settle_cover(jobs, 6_B);
  CHECK(jobs[2].covered == 4_B);
  CHECK(jobs[1].covered == 2_B);
  CHECK(jobs[0].covered == 0_B);
}

TEST_CASE("policy: what a job already uses within its guarantee is covered for nothing") {
  std::vector<JobView> jobs{job(4, 9, 3)};
  settle_cover(jobs, 0_B);
  CHECK(jobs[0].covered == 3_B);
}

TEST_CASE("policy: cover once given is not taken for a newcomer of higher priority") {
  std::vector<JobView> jobs{job(4, 9, 0, 4), job(4, 9, 0)};
  jobs[1].priority = 9;
  settle_cover(jobs, 5_B);
  CHECK(jobs[0].covered == 4_B);
  CHECK(jobs[1].covered == 1_B);
}

TEST_CASE("policy: a shortfall of the device takes cover from the lowest priority first") {
  std::vector<JobView> jobs{job(4, 9, 0, 4), job(4, 9, 0, 4)};
  jobs[0].priority = 1;
  settle_cover(jobs, 5_B);
  CHECK(jobs[0].covered == 4_B);
  CHECK(jobs[1].covered == 1_B);
}

TEST_CASE(
    "policy: lending lets a reclaimable session burst into what others do not use, where it can be asked "
    "back") {
  std::vector<JobView> jobs{job(0, 8, 0), job(4, 8, 0, 4)};
  const PoolView pool{6_B, 6_B};
  CHECK(admit(jobs, 0, pool, false, true, 6_B).headroom == 2_B);
  CHECK(admit(jobs, 0, pool, true, true, 6_B).headroom == 6_B);
  CHECK(admit(jobs, 0, pool, true, false, 6_B).headroom == 2_B);  // reclaim is not there to ask it back
  jobs[1].lend = false;
  CHECK(admit(jobs, 0, pool, true, true, 6_B).headroom == 2_B);
}

TEST_CASE("policy: rule 2 leaves what a job that does not lend may still need") {
  std::vector<JobView> jobs{job(4, 8, 0, 4), job(4, 8, 0, 4)};
  jobs[1].lend = false;
  CHECK(admit(jobs, 0, {5_B, 5_B}, false, true, 2_B).headroom == 1_B);
  jobs[1].lend = true;
  CHECK(admit(jobs, 0, {5_B, 5_B}, false, true, 2_B).headroom == 4_B);
}

TEST_CASE("policy: pieces between min and want, never below min") {
  CHECK(pieces_granted(7_B, 2_B, 1, 9) == 3);
  CHECK(pieces_granted(7_B, 2_B, 3, 3) == 3);
  CHECK(pieces_granted(7_B, 2_B, 4, 9) == 0);
  CHECK(pieces_granted(1_B, 2_B, 1, 1) == 0);
}

TEST_CASE("policy: rules and cover agree with the naive reference on random figures") {
  const auto seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  const auto up_to = [&](std::uint64_t n) {
    return std::uniform_int_distribution<std::uint64_t>(0, n)(random);
  };
  for (int round = 0; round < 20000; ++round) {
    std::vector<JobView> jobs;
    Bytes used{};
    for (std::uint64_t n = 1 + up_to(3); n > 0; --n) {
      JobView view = job(up_to(5), 0, up_to(5), up_to(5));
      view.limit = {std::max(view.in_force.value, view.used.value) + up_to(4)};
      view.priority = static_cast<std::int32_t>(up_to(2));
      view.arrival = jobs.size() + 1;
      view.lend = up_to(1) == 0;
      used += view.used;
      jobs.push_back(view);
    }
    const Bytes free{up_to(8)};
    const PoolView pool{free, {free.value + up_to(3)}};
    std::vector<NaiveJob> reference = naive(jobs);
    settle_cover(jobs, pool.free_guaranteed);
    naive_cover(reference, static_cast<std::int64_t>(pool.free_guaranteed.value));
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      REQUIRE(static_cast<std::int64_t>(jobs[i].covered.value) == reference[i].covered);
      for (const bool reclaimable : {false, true}) {
        std::int64_t best = 0;
        for (std::int64_t c = 1; c <= 20; ++c) {
          if (naive_grants(reference, i, static_cast<std::int64_t>(pool.free_now.value),
                           static_cast<std::int64_t>(pool.free_guaranteed.value), reclaimable, c)) {
            best = c;
          }
        }
        const Admission admission = admit(jobs, i, pool, reclaimable, true, 1_B);
        INFO("job " << i << " of " << jobs.size() << ", round " << round);
        REQUIRE(static_cast<std::int64_t>(admission.headroom.value) == best);
      }
    }
  }
}
