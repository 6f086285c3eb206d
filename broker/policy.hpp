// The rules of docs/quotas.md as pure functions over plain figures: what is in force, what is covered, and
// how much of a request may be granted now.
//
// Promises: the same figures give the same answer; nothing here changes anything but the `covered` it is
// asked to settle. Never: sees a chunk, a session or a clock.
//
// A request above its job's limit waits for what that job itself gives back (rule 1): `waiting` counts for
// its job as if it were charged, and what it will take is not given to others' bursts. All other waiting, and
// reclaim from other jobs, come later. Their places: `free_guaranteed` already counts what is coming back,
// rule 3 refuses at once where it will wait, and with `can_reclaim` false nothing is lent to reclaimable
// sessions (memory that cannot be asked back must not be given out of another's guarantee).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "broker/figures.hpp"
#include "config/config.hpp"
#include "shm/bytes.hpp"

namespace apportion {

// One job as the rules see it. `used` counts what is being prepared for it as if it were charged.
struct JobView {
  Bytes guarantee{};  // G
  Bytes limit{};      // L
  Bytes in_force{};   // A
  Bytes covered{};    // V
  Bytes used{};       // u
  Bytes waiting{};    // of requests above the limit that wait for what their job gives back
  std::int32_t priority = 0;
  std::uint64_t arrival = 0;  // earlier is smaller; 0: no session
  bool lend = true;
};

// What of the pool can be given. Both leave out what admitted requests still wait for.
struct PoolView {
  Bytes free_now{};         // for bursts: F
  Bytes free_guaranteed{};  // within a guarantee: F and what comes back to it by itself (MAKING, UNMAKING)
};

// A: G while the job has a session (an ORPHAN is one, a ZOMBIE alone is not), or always if it says so.
[[nodiscard]] Bytes in_force(Bytes guarantee, Hold hold, std::uint32_t sessions);

// Settles V of every job: never above A; lowered only where the pool cannot meet the sum any more (a
// shortfall of the device: lowest priority first, the latest first among equals); then raised toward A by
// priority, then arrival, as far as `available` goes. available: F and what comes back by itself, less what
// is promised.
void settle_cover(std::span<JobView> jobs, Bytes available);

struct Admission {
  Bytes headroom{};  // the most that may be granted now, any size
  // What stands in the way of more than the headroom.
  Refusal::Rule rule = Refusal::Rule::limit;
};

// Rules 1, 2 and 4 for a session of jobs[self]; rule 3 (within A, above V) gives what rule 2 gives. `covered`
// is settled. asked: for which size `rule` is to be named.
[[nodiscard]] Admission admit(std::span<const JobView> jobs, std::size_t self, PoolView pool,
                              bool reclaimable, bool can_reclaim, Bytes asked);

// min and want in whole pieces: want where the headroom allows, else as many pieces as fit, nothing below
// min.
[[nodiscard]] std::uint64_t pieces_granted(Bytes headroom, Bytes piece, std::uint64_t min_pieces,
                                           std::uint64_t want_pieces);

}  // namespace apportion
