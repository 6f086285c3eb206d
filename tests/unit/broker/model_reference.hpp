// What the naive rules (naive.hpp) say about a world as it is: whether a request made now is granted, waits
// or is refused. In granules (half chunks).
#pragma once

#include "tests/unit/broker/naive.hpp"
#include "tests/unit/broker/world.hpp"

namespace apportion::testing {

inline std::int64_t granules(std::uint64_t bytes) {
  return static_cast<std::int64_t>(bytes / (kTestChunk.value / 2));
}

// What the naive rules say about the world as it is, in granules (half chunks).
struct Reference {
  std::vector<NaiveJob> jobs;
  std::int64_t free_now = 0;
  std::int64_t free_guaranteed = 0;
};

inline Reference reference_of(const World& world, const CoreSetup& setup) {
  Reference reference;
  const Book& book = world.core().book();
  for (std::size_t j = 0; j < setup.jobs.size(); ++j) {
    const JobBook& job = book.jobs()[j];
    NaiveJob naive;
    naive.in_force =
        job.sessions > 0 || setup.jobs[j].hold == Hold::always ? granules(setup.jobs[j].guarantee.value) : 0;
    naive.limit = granules(setup.jobs[j].limit.value);
    naive.covered = granules(world.core().job_page(JobIndex{static_cast<std::uint32_t>(j)}).covered);
    naive.used = granules(job.account.charged().value);
    naive.priority = setup.jobs[j].priority;
    naive.arrival = static_cast<std::int64_t>(job.arrival);
    naive.lend = setup.jobs[j].lend;
    reference.jobs.push_back(naive);
  }
  reference.free_now = granules((book.free() + book.scrubbing()).value);  // overwritten ahead: nobody's
  reference.free_guaranteed = granules((book.free() + book.coming()).value);
  return reference;
}

// Rule 1: what stands in the way is the limit, and the job's other sessions and what is on its way back could
// make up for it. In granules.
struct Wait {
  bool possible = false;
  bool somebody_late = false;  // who is not asked again
};
inline Wait may_wait(const World& world, const CoreSetup& setup, std::size_t place, std::int64_t c) {
  const Book& book = world.core().book();
  const JobIndex job = world.job_of(place);
  Wait wait;
  std::int64_t back = 0;
  std::int64_t used = 0;
  for (const BookedSession& session : book.session_slots()) {
    if (session.state == SessionPhase::vacant || session.job != job) continue;
    for (const std::uint32_t slot : session.chunks) {
      const BookedChunk& chunk = *book.find(book.id_of(slot));
      const std::int64_t size = granules(chunk.bytes.value);
      used += size;
      const bool returns = chunk.state != ChunkState::offered && chunk.state != ChunkState::held;
      const bool other = session.id != world.client(place).session &&
                         session.state == SessionPhase::attached && chunk.state == ChunkState::held;
      if (returns || other) back += size;
    }
  }
  for (std::size_t other = 0; other < world.places(); ++other)
    wait.somebody_late = wait.somebody_late || world.client(other).late;
  const std::int64_t limit = granules(setup.jobs[job.value].limit.value);
  wait.possible = used + c > limit && back >= used + c - limit;
  return wait;
}

// Takes the step and, where it is a request made while nothing else is on its way, compares the answer with
// the naive rules; where it is within a covered guarantee and no driver fails, it must be met.
inline void step_with_reference(World& world, const CoreSetup& setup, const Step& step) {
  const Book& book = world.core().book();
  const bool quiet = book.coming() == book.scrubbing() && book.in_state(ChunkState::unmaking).value == 0;
  const bool asks = step.kind == Step::Kind::request || step.kind == Step::Kind::request_exact;
  if (!asks || !quiet || world.any_request_pending()) return world.apply(step);

  const Reference before = reference_of(world, setup);
  const std::size_t self = world.job_of(step.place).value;
  const std::int64_t piece = step.kind == Step::Kind::request ? 2 : static_cast<std::int64_t>(step.min);
  const std::int64_t least = step.kind == Step::Kind::request ? static_cast<std::int64_t>(step.min) : 1;
  const std::int64_t most = step.kind == Step::Kind::request ? static_cast<std::int64_t>(step.want) : 1;
  std::int64_t expected = 0;
  for (std::int64_t n = least; n <= most; ++n) {
    if (naive_grants(before.jobs, self, before.free_now, before.free_guaranteed, false, n * piece))
      expected = n;
  }
  const Wait wait = may_wait(world, setup, step.place, least * piece);
  const std::size_t grants_before = world.client(step.place).unacked.size();
  static_cast<void>(world.take_refusals());
  world.apply(step);
  const bool refused = !world.take_refusals().empty();
  if (expected == 0 && wait.possible && !refused) {
    APPORTION_CHECK(world.client(step.place).request_pending());
    APPORTION_CHECK(world.client(step.place).unacked.size() == grants_before);
    return;
  }
  APPORTION_CHECK(refused == (expected == 0));
  APPORTION_CHECK(!refused || !wait.possible || wait.somebody_late);  // F56: asked before it is refused
  if (refused) {
    // A refusal changes nothing.
    const Reference after = reference_of(world, setup);
    for (std::size_t j = 0; j < after.jobs.size(); ++j) {
      APPORTION_CHECK(after.jobs[j].used == before.jobs[j].used &&
                      after.jobs[j].covered == before.jobs[j].covered);
    }
    APPORTION_CHECK(after.free_now == before.free_now);
    return;
  }
  if (world.client(step.place).unacked.size() > grants_before) {
    APPORTION_CHECK(static_cast<std::int64_t>(world.client(step.place).unacked.back().ids.size()) ==
                    expected);
  }
}

}  // namespace apportion::testing
