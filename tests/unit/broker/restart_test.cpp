// A broker that finds its predecessor's journal: until recovery is built it counts and grants nothing.
#include <algorithm>
#include <cstring>

#include "broker/book.hpp"
#include "broker/core.hpp"
#include "tests/support/catch.hpp"
#include "tests/unit/broker/world.hpp"

using namespace apportion;
using namespace apportion::testing;
using Kind = Step::Kind;

namespace {

std::vector<std::byte> copy_of(World& world) {
  const auto memory = world.journal().memory();
  return {memory.begin(), memory.end()};
}

CoreSetup two_jobs() {
  return small_setup(4, {{"a", 2, 4}, {"b", 2, 4}});
}

struct Restarted {
  std::vector<std::byte> memory;
  Journal journal;
  Core core;
  Restarted(std::vector<std::byte> bytes, const CoreSetup& setup)
      : memory(std::move(bytes)), journal(*Journal::open(memory)), core(setup, journal) {}
};

}  // namespace

TEST_CASE(
    "F11: a restarted broker starts closed, charges every lease it finds, and says so in every refusal") {
  World world(two_jobs(), {{"a", 1000}, {"b", 2000}});
  world.start();
  world.attach(0);
  world.attach(1);
  world.take(0, 2);
  world.apply({Kind::request, 1, 1, 1});  // offered, not acknowledged
  Restarted next(copy_of(world), two_jobs());
  Actions actions;
  next.core.start({1}, actions);
  next.core.check();
  CHECK(next.core.ready());
  CHECK(next.core.closed().find("an earlier broker left 4 chunks") != std::string::npos);
  CHECK(next.core.pool().charged == 96_MiB);
  CHECK(next.core.pool().orphan == 96_MiB);
  CHECK(next.core.pool().free == 0_B);
  CHECK(next.core.pool().in_transit == 32_MiB);
  CHECK(next.core.job_page({0}).charged == 2 * kTestChunk.value);
  for (const Action& action : actions)
    CHECK_FALSE(std::holds_alternative<actions::MakeChunk>(action));

  actions.clear();
  events::SessionWanted wanted;
  wanted.job = "a";
  wanted.peer = {1000, {}, 500, 1};
  wanted.fresh.bytes[3] = 9;
  next.core.handle(wanted, actions);
  SessionId session;
  for (const Action& action : actions) {
    if (const auto* welcome = std::get_if<actions::Welcome>(&action)) session = welcome->session;
  }
  REQUIRE(static_cast<bool>(session));
  actions.clear();
  next.core.handle(events::Request{session, {1}, 32_MiB, 32_MiB, false, false}, actions);
  bool refused = false;
  for (const Action& action : actions) {
    CHECK_FALSE(std::holds_alternative<actions::SendGrant>(action));
    if (const auto* refusal = std::get_if<actions::SendRefusal>(&action)) {
      refused = refusal->refusal.rule == Refusal::Rule::closed &&
                refusal->refusal.reason.find("earlier broker") != std::string::npos &&
                refusal->refusal.reason.ends_with("(kill -TERM 0) and start it again");
    }
  }
  CHECK(refused);
  next.core.check();
}

TEST_CASE("F11: a closed broker forgets who has ended, and says what is left to do") {
  CoreSetup setup = two_jobs();
  World world(setup, {{"a", 1000}, {"b", 2000}});
  world.start();
  const SessionId first = world.attach(0);
  const SessionId second = world.attach(1);
  world.take(0, 2);
  world.take(1, 1);
  setup.stop_pid = 77;
  Restarted next(copy_of(world), setup);
  const std::string pids[] = {std::to_string(next.core.book().find(first)->pid),
                              std::to_string(next.core.book().find(second)->pid)};
  Actions actions;
  next.core.start({1}, actions);
  CHECK(next.core.closed().ends_with("yet: end pid " + pids[0] + ", " + pids[1] +
                                     ", then stop apportiond (kill -TERM 77) and start it again"));
  next.core.handle(events::ProcessGone{first}, actions);
  next.core.check();
  CHECK(next.core.closed().ends_with("yet: end pid " + pids[1] +
                                     ", then stop apportiond (kill -TERM 77) and start it again"));
  CHECK(next.core.book().find(first) == nullptr);
  CHECK(next.core.ledger().sessions.size() == 1);
  CHECK(next.core.pool().charged == kTestChunk);
  CHECK(next.core.pool().unsettled == kTestChunk * 3);
  CHECK(next.core.pool().free == 0_B);
  actions.clear();
  next.core.handle(events::ProcessGone{second}, actions);
  next.core.check();
  CHECK(next.core.closed().ends_with("yet: stop apportiond (kill -TERM 77) and start it again"));
  CHECK(std::any_of(actions.begin(), actions.end(), [](const Action& action) {
    const auto* end = std::get_if<actions::EndSession>(&action);
    return end != nullptr;
  }));
  // Counted by the broker after this one, too, and by no name.
  Restarted third(next.memory, setup);
  third.core.check();
  CHECK(third.core.closed().starts_with("an earlier broker left 4 chunks"));
  CHECK(third.core.ledger().sessions.empty());
  CHECK(third.core.pool().unsettled == kTestChunk * 4);
}

TEST_CASE("F17: a damaged record makes the start closed and its bytes stay out of what is free") {
  World world(two_jobs(), {{"a", 1000}});
  world.start();
  world.attach(0);
  world.take(0, 2);
  const std::vector<std::byte> good = copy_of(world);
  const Result<JournalImage> image = read_journal(good);
  const std::size_t first = 32 * 8;  // after the header
  std::size_t noticed = 0;
  std::size_t flips = 0;
  for (std::size_t at = first; at < good.size(); ++at) {
    if (good[at] == std::byte{0}) continue;
    std::vector<std::byte> bad = good;
    bad[at] ^= std::byte{0x10};
    const Result<JournalImage> read = read_journal(bad);
    REQUIRE(read.ok());
    ++flips;
    noticed += read->damaged.empty() ? 0 : 1;
    if (flips % 7 != 0) continue;
    Restarted next(std::move(bad), two_jobs());
    CHECK_FALSE(next.core.closed().empty());
    CHECK(next.core.pool().free == 0_B);
    next.core.check();
  }
  CHECK(flips > 50);
  CHECK(noticed == flips);
}

TEST_CASE("F17, F19: a damaged header and another layout are refused by name") {
  World world(two_jobs(), {{"a", 1000}});
  const std::vector<std::byte> good = copy_of(world);
  std::vector<std::byte> other = good;
  other[12] = std::byte{9};  // the major
  CHECK(Journal::open(other).error().message.find("layout 9") != std::string::npos);
  for (std::size_t at = 0; at < 17 * 8; ++at) {
    std::vector<std::byte> bad = good;
    bad[at] ^= std::byte{1};
    CHECK_FALSE(Journal::open(bad).ok());
  }
  std::vector<std::byte> cut(good.begin(), good.end() - 8);
  CHECK_FALSE(Journal::open(cut).ok());
}

TEST_CASE("F18: a new journal, or one whose last lease has gone, starts open") {
  const CoreSetup setup = small_setup(4, {{"a", 2, 4}}, Reserve::leased);
  World world(setup, {{"a", 1000}});
  world.start();
  world.attach(0);
  world.take(0, 2);
  world.apply({Kind::detach, 0});
  world.work();
  Restarted next(copy_of(world), setup);
  CHECK(next.core.closed().empty());
  CHECK(next.core.pool().free == 128_MiB);
}

TEST_CASE("journal: ids of chunks and sessions are never used twice, over restarts too") {
  const CoreSetup setup = small_setup(4, {{"a", 2, 4}}, Reserve::leased);
  World world(setup, {{"a", 1000}});
  world.start();
  const SessionId session = world.attach(0);
  const std::vector<ChunkId> ids = world.take(0, 1);
  world.apply({Kind::detach, 0});
  world.work();
  Restarted next(copy_of(world), setup);
  Actions actions;
  next.core.start({1}, actions);
  events::SessionWanted wanted;
  wanted.job = "a";
  wanted.peer = {1000, {}, 500, 1};
  next.core.handle(wanted, actions);
  SessionId fresh;
  for (const Action& action : actions) {
    if (const auto* welcome = std::get_if<actions::Welcome>(&action)) fresh = welcome->session;
  }
  CHECK(fresh.slot() == session.slot());
  CHECK(fresh != session);
  actions.clear();
  next.core.handle(events::Request{fresh, {1}, 32_MiB, 32_MiB, false, false}, actions);
  bool made = false;
  for (const Action& action : actions) {
    if (const auto* make = std::get_if<actions::MakeChunk>(&action)) {
      made = true;
      CHECK(make->id.slot() == ids[0].slot());
      CHECK(make->id != ids[0]);
    }
  }
  CHECK(made);
}

TEST_CASE("F17: with a journal that cannot be read the start is closed and all of the pool unknown") {
  CoreSetup setup = two_jobs();
  setup.closed = "the journal is damaged";
  World world(setup, {{"a", 1000}});
  world.start();
  CHECK(world.core().ready());
  CHECK(world.core().closed().starts_with("the journal is damaged: end the earlier broker's clients, then "));
  CHECK(world.core().pool().unsettled == 128_MiB);
  CHECK(world.core().pool().free == 0_B);
  world.attach(0);
  CHECK(world.take(0, 1).empty());
  CHECK(world.take_refusals().at(0).rule == Refusal::Rule::closed);
  world.apply({Kind::detach, 0});
  world.core().check();
}
