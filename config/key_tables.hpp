// The three lists of keys: what is parsed, what docs/config.md must list and what an unknown key is compared
// with are the same. Inner header of config/.
#pragma once

#include <optional>
#include <span>

#include "config/config.hpp"
#include "config/value.hpp"

namespace apportion {

// A job while it is read: whether share stands beside guarantee or limit is only known at the end.
struct JobTarget {
  JobConfig job;
  std::optional<Share> share;
  const Names& names;
};

template <typename Target>
struct Key {
  const char* name;
  const char* default_text;  // as it could be written, or "-" where leaving the key out has no spelling
  void (*read)(Value&, Target&);
};

[[nodiscard]] std::span<const Key<BrokerConfig>> broker_keys();
[[nodiscard]] std::span<const Key<JobTarget>> job_keys();
[[nodiscard]] std::span<const Key<AdhocConfig>> adhoc_keys();

}  // namespace apportion
