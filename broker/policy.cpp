#include "broker/policy.hpp"

#include <algorithm>
#include <numeric>

namespace apportion {

Bytes in_force(Bytes guarantee, Hold hold, std::uint32_t sessions) {
  return sessions > 0 || hold == Hold::always ? guarantee : Bytes{};
}

void settle_cover(std::span<JobView> jobs, Bytes available) {
  // Highest priority first, then who came first; jobs without a session (hold = "always") count as the
  // earliest.
  std::vector<std::size_t> order(jobs.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    if (jobs[a].priority != jobs[b].priority) return jobs[a].priority > jobs[b].priority;
    return jobs[a].arrival < jobs[b].arrival;
  });

  Bytes needed{};
  for (JobView& job : jobs) {
    job.covered = std::min(job.covered, job.in_force);
    needed += saturating_sub(job.covered, job.used);
  }
  Bytes missing = saturating_sub(needed, available);
  for (auto at = order.rbegin(); at != order.rend() && missing.value > 0; ++at) {
    JobView& job = jobs[*at];
    const Bytes cut = std::min(missing, saturating_sub(job.covered, job.used));
    job.covered -= cut;
    needed -= cut;
    missing -= cut;
  }
  Bytes slack = saturating_sub(available, needed);
  for (const std::size_t at : order) {
    JobView& job = jobs[at];
    // Up to what it uses, cover costs nothing: that memory is there.
    job.covered = std::max(job.covered, std::min(job.in_force, job.used));
    const Bytes raise = std::min(slack, job.in_force - job.covered);
    job.covered += raise;
    slack -= raise;
  }
}

Admission admit(std::span<const JobView> jobs, std::size_t self, PoolView pool, bool reclaimable,
                bool can_reclaim, Bytes asked) {
  const JobView& job = jobs[self];
  const Bytes used = job.used + job.waiting;
  const Bytes below_limit = saturating_sub(job.limit, used);

  // Rule 2: from what is free, but for what jobs that do not lend may still need.
  Bytes unlent{};
  Bytes others_need{};
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    if (i == self) continue;
    if (!jobs[i].lend) unlent += saturating_sub(jobs[i].covered, jobs[i].used);
    const bool lent_to_us = jobs[i].lend && reclaimable && can_reclaim;
    const Bytes guarantee_need = lent_to_us ? Bytes{} : saturating_sub(jobs[i].in_force, jobs[i].used);
    // What a waiter can take of what is free, and of what its job gives back, ends at the limit.
    const Bytes waiter_need = std::min(jobs[i].waiting, saturating_sub(jobs[i].limit, jobs[i].used));
    others_need += std::max(guarantee_need, waiter_need);
  }
  const Bytes guaranteed =
      std::min(saturating_sub(job.covered, used), saturating_sub(pool.free_guaranteed, unlent));

  // Rule 4: above A, only what leaves every other job its guarantee. Between V and A nothing is a burst (rule
  // 3).
  const Bytes burst = std::min(below_limit, saturating_sub(pool.free_now, others_need));
  const bool bursts = used + burst > job.in_force;

  Admission admission;
  admission.headroom = std::min(below_limit, bursts ? std::max(guaranteed, burst) : guaranteed);
  if (asked > below_limit) {
    admission.rule = Refusal::Rule::limit;
  } else if (used + asked <= job.in_force) {
    admission.rule = Refusal::Rule::uncovered;
  } else {
    admission.rule = Refusal::Rule::burst;
  }
  return admission;
}

std::uint64_t pieces_granted(Bytes headroom, Bytes piece, std::uint64_t min_pieces,
                             std::uint64_t want_pieces) {
  const std::uint64_t fit = std::min(headroom / piece, want_pieces);
  return fit < min_pieces ? 0 : fit;
}

}  // namespace apportion
