#include "cli/status_figures.hpp"

#include <string>

#include "tests/support/catch.hpp"
#include "tests/unit/cli/hand_made.hpp"

using namespace apportion;
using namespace apportion::testing;

TEST_CASE("status: used is what is charged less idle, unspent and in transit") {
  const StatusAnswer answer = hand_made_answer();
  CHECK(used_of(answer.jobs[0].job) == 13 * kGiB);
  CHECK(used_of(answer.sessions[0].session) == 8 * kGiB);
  CHECK(used_of(answer.sessions[1].session) == 0);
}

TEST_CASE("F23: parts that add up to more than the whole make a 0, not a huge number") {
  SessionRecord session;
  session.charged = kGiB;
  session.idle = kGiB;
  session.in_transit = kGiB;
  CHECK(used_of(session) == 0);
  JobRecord job;
  job.charged = 2 * kGiB;
  job.told_total = kGiB;
  job.unspent = 3 * kGiB;
  CHECK(used_of(job) == 0);
  CHECK(told_free_of(job) == 0);
}

TEST_CASE("status: what programs are told is free falls by what is charged") {
  const StatusAnswer answer = hand_made_answer();
  CHECK(told_free_of(answer.jobs[0].job) == 0);
  CHECK(told_free_of(answer.jobs[1].job) == 64 * kGiB);
}

TEST_CASE("status: a context belongs to its session, and only contexts are counted as contexts") {
  const StatusAnswer answer = hand_made_answer();
  CHECK(overhead_of(answer, answer.sessions[0]) == kGiB / 2);
  CHECK(overhead_of(answer, answer.sessions[1]) == 0);
  CHECK(contexts_of(answer) == kGiB / 2);
}

TEST_CASE("status: loose bytes of the pool are not held by the broker") {
  CHECK(reserved_of(hand_made_answer()) == 61 * kGiB);
}

TEST_CASE("status: codes of a newer broker are shown as unknown") {
  CHECK(std::string(state_word(static_cast<std::uint32_t>(SessionState::leaving))) == "leaving");
  CHECK(std::string(state_word(99)) == "unknown");
  CHECK(std::string(holder_word(static_cast<std::uint32_t>(wire::HolderKind::zombie))) == "zombie");
  CHECK(std::string(holder_word(0)) == "unknown");
}
