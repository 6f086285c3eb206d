#include "broker/hygiene.hpp"

#include <algorithm>

namespace apportion {

bool Hygiene::all_give_away() const {
  return std::all_of(jobs_.begin(), jobs_.end(),
                     [](const JobRule& job) { return job.scrub == Scrub::never; });
}

bool Hygiene::needs_scrub(const Past& past, Owner to) const {
  if (past.clean) return false;
  if (!past.owner) return !all_give_away();  // F39
  if (*past.owner == to) return rule(to.job).scrub == Scrub::always;
  return !(gives_away(to.job) && gives_away(past.owner->job));
}

std::optional<int> Hygiene::rank_to_grant(const Past& past, Owner to) const {
  if (!may_have(past, to)) return std::nullopt;
  const int shared = past.bound ? 0 : 1;
  if (needs_scrub(past, to)) return 5 + shared;
  if (past.clean) return 3 + shared;
  return past.owner == to ? 1 : 2;
}

int Hygiene::rank_to_unmake(const Past& past) const {
  const int shared = past.bound ? 0 : 1;
  return (needs_scrub_to_loosen(past) ? 2 : 0) + shared;
}

}  // namespace apportion
