#include "tests/unit/broker/naive.hpp"

#include <algorithm>

namespace apportion::testing {

namespace {

std::int64_t needed(const std::vector<NaiveJob>& jobs) {
  std::int64_t sum = 0;
  for (const NaiveJob& job : jobs)
    sum += std::max<std::int64_t>(0, job.covered - job.used);
  return sum;
}

// The job served before all others that `wanted` accepts; nothing: size().
template <typename Wanted>
std::size_t foremost(const std::vector<NaiveJob>& jobs, bool last, Wanted wanted) {
  std::size_t best = jobs.size();
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    if (!wanted(jobs[i])) continue;
    if (best == jobs.size()) {
      best = i;
      continue;
    }
    const bool before = jobs[i].priority != jobs[best].priority ? jobs[i].priority > jobs[best].priority
                                                                : jobs[i].arrival < jobs[best].arrival;
    if (last ? !before : before) best = i;
  }
  return best;
}

}  // namespace

void naive_cover(std::vector<NaiveJob>& jobs, std::int64_t available) {
  for (NaiveJob& job : jobs)
    job.covered = std::min(job.covered, job.in_force);
  while (needed(jobs) > available) {
    const std::size_t i = foremost(jobs, true, [](const NaiveJob& job) { return job.covered > job.used; });
    if (i == jobs.size()) break;
    --jobs[i].covered;
  }
  for (;;) {
    const std::size_t i = foremost(jobs, false, [&](const NaiveJob& job) {
      if (job.covered >= job.in_force) return false;
      return job.covered < job.used || needed(jobs) + 1 <= available;
    });
    if (i == jobs.size()) break;
    ++jobs[i].covered;
  }
}

bool naive_grants(const std::vector<NaiveJob>& jobs, std::size_t self, std::int64_t free_now,
                  std::int64_t free_guaranteed, bool lends_to_it, std::int64_t c) {
  const NaiveJob& job = jobs[self];
  if (job.used + c > job.limit) return false;  // rule 1
  std::int64_t unlent = 0;
  std::int64_t others = 0;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    if (i == self) continue;
    if (!jobs[i].lend) unlent += std::max<std::int64_t>(0, jobs[i].covered - jobs[i].used);
    if (!(jobs[i].lend && lends_to_it)) others += std::max<std::int64_t>(0, jobs[i].in_force - jobs[i].used);
  }
  if (job.used + c <= job.covered) return free_guaranteed - c >= unlent;  // rule 2
  if (job.used + c <= job.in_force) return false;                         // rule 3
  return free_now - c >= others;                                          // rule 4
}

}  // namespace apportion::testing
