#include "broker/hygiene.hpp"

namespace apportion {

bool Hygiene::needs_scrub(const Past& past, Owner to) const {
  if (past.clean) return false;
  const bool takes_anything = gives_away(to.job);
  if (!past.owner) return !takes_anything;
  if (*past.owner == to) return rule(to.job).scrub == Scrub::always;
  return !(takes_anything && gives_away(past.owner->job));
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
