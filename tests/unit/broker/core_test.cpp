#include "broker/core.hpp"

#include "tests/support/catch.hpp"
#include "tests/unit/broker/world.hpp"

using namespace apportion;
using namespace apportion::testing;
using Kind = Step::Kind;

namespace {

constexpr std::uint64_t kMiB = 1 << 20;

CoreSetup two_jobs() {
  return small_setup(4, {{"a", 2, 4}, {"b", 2, 4}});
}
std::vector<Place> two_places() {
  return {{"a", 1000}, {"b", 2000}};
}

}  // namespace

TEST_CASE("core: a full pool is made at the start and Ready follows the last chunk") {
  World world(two_jobs(), two_places());
  world.start();
  CHECK(world.core().ready());
  CHECK(world.core().pool().free == 128_MiB);
  CHECK(world.core().pool().loose == 0_B);
  CHECK(world.take_actions<actions::Ready>().size() == 1);
}

TEST_CASE("core: reserve = leased takes memory from the device only for leases, and gives it back") {
  World world(small_setup(4, {{"a", 2, 4}}, Reserve::leased), {{"a"}});
  world.start();
  CHECK(world.core().ready());
  CHECK(world.physical() == 0_B);
  world.attach(0);
  CHECK(world.take(0, 3).size() == 3);
  CHECK(world.physical() == 96_MiB);
  world.apply({Kind::release_all, 0});
  CHECK(world.take_actions<actions::SendReleased>().empty());  // not before the bytes are loose
  world.work();
  CHECK(world.physical() == 0_B);
  CHECK(world.used(0) == 0_B);
  CHECK(world.take_actions<actions::SendReleased>().at(0).bytes == 96_MiB);
}

TEST_CASE("core: the job's page is published before the grant that depends on it") {
  CoreSetup setup = two_jobs();
  for (JobRule& job : setup.jobs)
    job.scrub = Scrub::never;  // granted within the event
  World world(setup, two_places());
  world.start();
  world.attach(0);
  Actions actions;
  world.core().handle(events::Request{world.client(0).session, {9}, 32_MiB, 32_MiB, false, false}, actions);
  std::size_t page = actions.size();
  std::size_t grant = actions.size();
  for (std::size_t i = 0; i < actions.size(); ++i) {
    if (const auto* publish = std::get_if<actions::PublishJob>(&actions[i])) {
      CHECK(publish->figures.charged == 32 * kMiB);
      page = i;
    }
    if (std::holds_alternative<actions::SendGrant>(actions[i])) grant = i;
  }
  REQUIRE(grant < actions.size());
  CHECK(page < grant);
}

TEST_CASE("core R9: two processes of one job have one account; the second is refused at the limit") {
  World world(small_setup(5, {{"a", 5, 5}}), {{"a"}, {"a"}});
  world.start();
  world.attach(0);
  world.attach(1);
  CHECK(world.take(0, 3).size() == 3);
  CHECK(world.take(1, 3).empty());
  world.apply({Kind::give_back_none, 0});
  const Refusal refusal = world.take_refusals().at(0);
  CHECK(refusal.rule == Refusal::Rule::limit);
  CHECK(refusal.used == 96_MiB);
  CHECK(refusal.headroom == 64_MiB);
  REQUIRE(refusal.holders.size() == 1);
  CHECK(refusal.holders[0].pid == world.client(0).pid);
}

TEST_CASE("core R14: a lone job reaches its limit, the whole pool; the next to attach is told who holds it") {
  World world(two_jobs(), two_places());
  world.start();
  world.attach(0);
  CHECK(world.take(0, 4).size() == 4);
  world.attach(1);
  CHECK(world.core().job_page(world.job_of(1)).in_force == 64 * kMiB);
  CHECK(world.core().job_page(world.job_of(1)).covered == 0);
  CHECK(world.take(1, 2).empty());
  const Refusal refusal = world.take_refusals().at(0);
  CHECK(refusal.rule == Refusal::Rule::uncovered);
  REQUIRE(refusal.holders.size() == 1);
  CHECK(refusal.holders[0].job == "a");
  CHECK(refusal.holders[0].above_guarantee == 64_MiB);
  CHECK(refusal.reason.find("held by a (pid " + std::to_string(world.client(0).pid) +
                            ", uid 1000, 128 MiB)") != std::string::npos);
  world.apply({Kind::release_all, 0});
  CHECK(world.core().job_page(world.job_of(1)).covered == 64 * kMiB);
  CHECK(world.take(1, 2).size() == 2);
}

TEST_CASE("core: a refusal says of a holder that it has ended") {
  World world(two_jobs(), two_places());
  world.start();
  world.attach(0);
  CHECK(world.take(0, 4).size() == 4);
  world.attach(1);
  const std::string pid = std::to_string(world.client(0).pid);
  world.apply({Kind::die, 0});  // the device has not given its memory back
  CHECK(world.take(1, 2).empty());
  CHECK(world.take_refusals().at(0).reason.find("held by a (pid " + pid +
                                                " that has ended, uid 1000, 128 MiB)") != std::string::npos);
}

TEST_CASE("core: a burst leaves every present job its guarantee") {
  World world(two_jobs(), two_places());
  world.start();
  world.attach(0);
  world.attach(1);
  CHECK(world.take(0, 2).size() == 2);
  CHECK(world.take(0, 1).empty());
  const Refusal refusal = world.take_refusals().at(0);
  CHECK(refusal.rule == Refusal::Rule::burst);
  CHECK(refusal.headroom == 0_B);
  CHECK(world.take(1, 2).size() == 2);
}

TEST_CASE("core: hold = always keeps a guarantee in force while nobody is there") {
  World world(small_setup(4, {{"a", 2, 4}, {"b", 2, 4, 0, Hold::always}}), two_places());
  world.start();
  world.attach(0);
  CHECK(world.take(0, 3).empty());
  CHECK(world.take(0, 2).size() == 2);
}

TEST_CASE("core: min and want: the guaranteed part and what rule 4 allows, never below min") {
  World world(small_setup(5, {{"a", 2, 5}, {"b", 2, 4}}), two_places());
  world.start();
  world.attach(0);
  world.attach(1);
  world.apply({Kind::request, 0, 1, 5});
  REQUIRE(world.client(0).unacked.size() == 1);
  CHECK(world.client(0).unacked[0].ids.size() == 3);
}

TEST_CASE("core C21: sixteen processes of one job asking at once never pass its limit") {
  World world(small_setup(8, {{"a", 4, 5}}), std::vector<Place>(16, Place{"a"}), false);
  world.start();
  for (std::size_t i = 0; i < 16; ++i)
    world.attach(i);
  for (int round = 0; round < 20; ++round) {
    for (std::size_t i = 0; i < 16; ++i)
      world.apply({Kind::request, i, 1, 1});
    std::size_t got = 0;
    for (std::size_t i = 0; i < 16; ++i) {
      got += world.client(i).has.size();
      if (!world.client(i).unacked.empty()) world.apply({Kind::ack, i});
    }
    CHECK(got == 5);
    for (std::size_t i = 0; i < 16; ++i) {
      if (!world.client(i).has.empty()) world.apply({Kind::release_all, i});
    }
  }
}

TEST_CASE("core: the same owner gets its own returned chunks back, without any driver call") {
  World world(two_jobs(), two_places());
  world.start();
  world.attach(0);
  const std::vector<ChunkId> first = world.take(0, 2);
  world.apply({Kind::release_all, 0});
  CHECK(world.take_actions<actions::MakeChunk>().size() == 4);  // the first filling
  const std::vector<ChunkId> second = world.take(0, 2);
  CHECK(std::set<ChunkId>(first.begin(), first.end()) == std::set<ChunkId>(second.begin(), second.end()));
  CHECK(world.take_actions<actions::MakeChunk>().empty());
}

TEST_CASE("core: return = strict unmakes what comes back, charged until it is loose") {
  CoreSetup setup = two_jobs();
  setup.jobs[0].on_return = ReturnRule::strict;
  World world(setup, two_places());
  world.start();
  world.attach(0);
  world.take(0, 2);
  world.apply({Kind::release_all, 0});
  CHECK(world.used(0) == 64_MiB);
  CHECK(world.take_actions<actions::SendReleased>().empty());
  world.work();
  CHECK(world.used(0) == 0_B);
  CHECK(world.take_actions<actions::SendReleased>().size() == 1);
  CHECK(world.core().pool().loose == 0_B);  // remade
}

TEST_CASE("core: an exact-size chunk is cut from the pool and goes back to it") {
  World world(two_jobs(), two_places());
  world.start();
  world.attach(0);
  world.apply({Kind::request_exact, 0, 3});  // 48 MiB
  world.work();
  REQUIRE(world.client(0).unacked.size() == 1);
  CHECK(world.client(0).unacked[0].ids.size() == 1);
  CHECK(world.used(0) == 48_MiB);
  CHECK(world.core().pool().loose == 16_MiB);
  world.apply({Kind::ack, 0});
  world.apply({Kind::release_all, 0});
  world.work();
  CHECK(world.used(0) == 0_B);
  CHECK(world.core().pool().loose == 0_B);
  CHECK(world.core().book().in_state(ChunkState::free) == 128_MiB);
}

TEST_CASE("core: a refusal changes neither the book nor the journal") {
  World world(two_jobs(), two_places());
  world.start();
  world.attach(0);
  world.attach(1);
  world.take(0, 2);
  const auto memory = world.journal().memory();
  const std::vector<std::byte> before(memory.begin(), memory.end());
  const std::string fingerprint = world.fingerprint();
  for (const auto& [min, want] : std::vector<std::pair<std::uint64_t, std::uint64_t>>{
           {1, 1}, {3, 4}, {0, 1}, {2, 1}, {1000000, 1000000}}) {
    world.apply({Kind::request, 0, min, want});
  }
  CHECK(world.take_refusals().size() == 5);
  CHECK(std::equal(before.begin(), before.end(), memory.begin(), memory.end()));
  CHECK(world.fingerprint() == fingerprint);
}

TEST_CASE("core: a refusal names every figure, the holder and what would help, on one line") {
  World world(two_jobs(), two_places());
  world.start();
  world.attach(0);
  world.attach(1);
  world.take(0, 2);
  world.take(1, 1);
  CHECK(world.take(0, 1).empty());
  const Refusal refusal = world.take_refusals().at(0);
  for (const char* part :
       {"job a: 32 MiB refused", "used 64 MiB", "guarantee 64 MiB", "covered 64 MiB", "limit 128 MiB",
        "could get 0 B now", "free 32 MiB", "held by b (pid ", "uid 2000, 32 MiB", "would help: "}) {
    CHECK(refusal.reason.find(part) != std::string::npos);
  }
  CHECK(refusal.reason.find('\n') == std::string::npos);
  CHECK(world.core().refusals(world.job_of(0)).size() == 1);
}

TEST_CASE("core: who may attach is decided by the config and the kernel's word") {
  CoreSetup setup = two_jobs();
  setup.jobs[0].users = {UserRule{"alice", false, 1000}, UserRule{"@ml", true, 77}};
  setup.sessions_per_uid = 1;
  World world(setup, {{"a", 1001}, {"nobody's", 1000}, {"", 1000}, {"a", 1000}, {"b", 1000}});
  world.start();
  const auto refusal = [&](std::size_t place) {
    world.attach(place);
    const auto refused = world.take_actions<actions::RefuseHello>();
    return refused.empty() ? std::string() : refused[0].error.message;
  };
  CHECK(refusal(0).find("uid 1001 may not join job \"a\"") != std::string::npos);
  CHECK(refusal(1).find("its jobs: a, b") != std::string::npos);
  CHECK(refusal(2).find("no [jobs.default]") != std::string::npos);
  CHECK(refusal(3).empty());
  CHECK(refusal(4).find("sessions_per_uid") != std::string::npos);
  events::SessionWanted member;
  member.connection = {0};
  member.job = "a";
  member.peer = {5, {3, 77}, 50, 1};
  world.feed(member);
  CHECK(world.take_actions<actions::Welcome>().size() == 1);
}

TEST_CASE("core: a program is told its guarantee, a reclaimable one the limit, and others do not move it") {
  World world(two_jobs(), {{"a", 1000}, {"b", 2000}, {"a", 1000, true}});
  world.start();
  world.attach(0);
  world.attach(2);
  const auto welcomes = world.take_actions<actions::Welcome>();
  CHECK(welcomes[0].told_total == 64_MiB);
  CHECK(welcomes[1].told_total == 128_MiB);
  world.attach(1);
  world.take(1, 2);
  CHECK(world.core().job_page(world.job_of(0)).told_free == 64 * kMiB);
  world.take(0, 1);
  CHECK(world.core().job_page(world.job_of(0)).told_free == 32 * kMiB);
}

TEST_CASE("a goodbye says how much it gave back, exact chunks too, and without what was back already") {
  World world(small_setup(4, {{"a", 2, 4}}), {{"a", 1000}});
  world.start();
  world.attach(0);
  world.take(0, 1);
  world.apply({Kind::request_exact, 0, 3});
  world.work();
  world.apply({Kind::ack, 0});
  static_cast<void>(world.take_actions<actions::EndSession>());
  world.apply({Kind::detach, 0});
  const auto ended = world.take_actions<actions::EndSession>();
  REQUIRE(ended.size() == 1);
  CHECK(ended[0].bytes == 80_MiB);
  CHECK(ended[0].why.empty());
}
