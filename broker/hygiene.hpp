// Which chunk may go to whom, and what has to be overwritten first: the rules of `scrub` and `return` as pure
// functions over a chunk's past.
//
// Promises: a job whose `scrub` is not "never" gives no byte away and gets none of a stranger's (F39); a
// chunk of which a process of another user may have kept an fd is never granted (it is unmade, and its bytes
// made anew). Never: sees a state or a session.
#pragma once

#include <optional>
#include <vector>

#include "broker/book.hpp"
#include "broker/setup.hpp"

namespace apportion {

class Hygiene {
 public:
  explicit Hygiene(const std::vector<JobRule>& jobs) : jobs_(jobs) {}

  // As it is, or overwritten.
  [[nodiscard]] bool may_have(const Past& past, Owner to) const {
    return !past.bound || past.owner->uid == to.uid;
  }
  // Before a grant to `to`. A chunk without a past is as the driver made it, perhaps of bytes that a killed
  // client left: as it is only where every job says "never".
  [[nodiscard]] bool needs_scrub(const Past& past, Owner to) const;
  // Before its bytes become loose, where the driver may give them to anybody.
  [[nodiscard]] bool needs_scrub_to_loosen(const Past& past) const {
    return past.owner && !past.clean && !gives_away(past.owner->job);
  }
  [[nodiscard]] bool gives_away(JobIndex job) const { return rule(job).scrub == Scrub::never; }
  // A returned chunk of this job is unmade at once.
  [[nodiscard]] bool unmakes_returns(JobIndex job) const { return rule(job).on_return == ReturnRule::strict; }
  // A returned chunk of this job is for its own user only.
  [[nodiscard]] bool binds_returns(JobIndex job) const { return rule(job).on_return != ReturnRule::trusted; }

  // Free chunks for a grant to `to`, the best first: its own as they are; what others had and may pass on;
  // clean ones, those first that fewer could have; then those that must be overwritten.
  [[nodiscard]] std::optional<int> rank_to_grant(const Past& past, Owner to) const;
  // Free chunks to unmake: those first that cost no scrub, and of these those that fewest could have.
  [[nodiscard]] int rank_to_unmake(const Past& past) const;

 private:
  [[nodiscard]] const JobRule& rule(JobIndex job) const { return jobs_[job.value]; }
  [[nodiscard]] bool all_give_away() const;
  const std::vector<JobRule>& jobs_;
};

}  // namespace apportion
