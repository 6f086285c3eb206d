// The rules of docs/quotas.md once more, written the slow and obvious way in whole chunks: what the real
// policy is compared with. Shares no code with it.
#pragma once

#include <cstdint>
#include <vector>

namespace apportion::testing {

struct NaiveJob {
  std::int64_t in_force = 0, limit = 0, covered = 0, used = 0;  // A, L, V, u: in units
  std::int64_t priority = 0, arrival = 0;
  bool lend = true;
};

// V of every job, from what it was: lowered only where it must, raised one unit at a time.
void naive_cover(std::vector<NaiveJob>& jobs, std::int64_t available);

// Whether c units may be granted to jobs[self] now: rules 1 to 4, literally, without waiting.
[[nodiscard]] bool naive_grants(const std::vector<NaiveJob>& jobs, std::size_t self, std::int64_t free_now,
                                std::int64_t free_guaranteed, bool lends_to_it, std::int64_t c);

}  // namespace apportion::testing
