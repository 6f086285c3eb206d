// Faults of docs/faults.md that the core alone can be asked about. Real processes and kills come in
// tests/faults.
#include "broker/core.hpp"
#include "tests/support/catch.hpp"
#include "tests/unit/broker/world.hpp"

using namespace apportion;
using namespace apportion::testing;
using Kind = Step::Kind;

namespace {

CoreSetup two_jobs() {
  return small_setup(4, {{"a", 2, 4}, {"b", 2, 4}});
}
std::vector<Place> two_places() {
  return {{"a", 1000}, {"b", 2000}};
}

void read_device(World& world) {
  world.apply({Kind::tick});
  world.apply({Kind::read_device});
  world.work();
}

}  // namespace

TEST_CASE("F01: the dead one's chunks are ZOMBIE and charged until the device shows the room, then remade") {
  World world(two_jobs(), two_places());
  world.start();
  world.attach(0);
  world.attach(1);
  const std::vector<ChunkId> lost = world.take(0, 2);
  world.take(1, 1);
  world.apply({Kind::die, 0});
  CHECK(world.core().pool().zombie == 64_MiB);
  CHECK(world.take_actions<actions::EndSession>().size() == 1);
  world.work();  // closed on our side; the device still holds it
  read_device(world);
  CHECK(world.used(0) == 64_MiB);
  CHECK(world.core().wants_tick());
  world.apply({Kind::memory_back, 0});
  read_device(world);
  CHECK(world.used(0) == 0_B);
  CHECK(world.core().pool().zombie == 0_B);
  CHECK(world.core().book().in_state(ChunkState::free) == 96_MiB);
  for (const ChunkId id : lost)
    CHECK(world.core().book().find(id) == nullptr);  // remade, not reused
  CHECK(world.used(1) == 32_MiB);
  CHECK_FALSE(world.core().wants_tick());
}

TEST_CASE("F01: a guarantee is not in force for a job of which only zombies are left") {
  World world(two_jobs(), two_places());
  world.start();
  world.attach(0);
  world.take(0, 1);
  world.apply({Kind::die, 0});
  CHECK(world.core().job_page(world.job_of(0)).in_force == 0);
  CHECK(world.core().job_page(world.job_of(0)).charged == kTestChunk.value);
  world.attach(1);
  CHECK(world.take(1, 3).size() == 3);
}

TEST_CASE("F02: death between GRANT and ACK: the offered chunks are retired, nothing leaks") {
  World world(two_jobs(), two_places());
  world.start();
  world.attach(0);
  world.apply({Kind::request, 0, 2, 2});
  CHECK(world.core().book().in_state(ChunkState::offered) == 64_MiB);
  world.apply({Kind::die, 0});
  CHECK(world.core().pool().zombie == 64_MiB);  // the fds may lie in the socket
  world.apply({Kind::memory_back, 0});
  world.work();
  read_device(world);
  CHECK(world.core().pool().free == 128_MiB);
}

TEST_CASE("F02: death before the GRANT was sent: the chunks were never seen and go back as they were") {
  World world(small_setup(2, {{"a", 2, 2}, {"b", 1, 2}}), {{"a", 1}, {"b", 2}});
  world.start();
  world.attach(1);
  world.take(1, 1);
  world.apply({Kind::detach, 1});
  world.attach(0);
  world.apply({Kind::request, 0, 2, 2});  // one is ready, the other must be remade first
  CHECK(world.core().book().in_state(ChunkState::offered) == 32_MiB);
  world.apply({Kind::die, 0});
  CHECK(world.core().pool().zombie == 0_B);
  world.work();
  CHECK(world.core().pool().free == 64_MiB);
}

TEST_CASE("F03: a chunk is freed once, however often and late it is named") {
  World world(two_jobs(), two_places());
  world.start();
  world.attach(0);
  const std::vector<ChunkId> ids = world.take(0, 2);
  const SessionId session = world.client(0).session;
  world.apply({Kind::release_all, 0});
  const auto once = world.take_actions<actions::SendReleased>();
  CHECK(once.at(0).bytes == 64_MiB);
  CHECK(once.at(0).chunks == 2);
  world.feed(events::Released{session, {77}, {ids[0], ids[0], ids[1]}});
  const auto again = world.take_actions<actions::SendReleased>();
  CHECK(again.at(0).bytes == 0_B);
  CHECK(again.at(0).chunks == 0);
  CHECK(again.at(0).unknown.size() == 3);
  world.apply({Kind::die, 0});
  world.feed(events::ProcessGone{session});
  world.feed(events::Released{session, {78}, ids});
  CHECK(world.core().pool().free == 128_MiB);
}

TEST_CASE("F03: nobody releases, acknowledges or refuses what is another's") {
  World world(two_jobs(), two_places());
  world.start();
  world.attach(0);
  world.attach(1);
  const std::vector<ChunkId> ids = world.take(0, 1);
  world.apply({Kind::request, 0, 1, 1});
  const std::vector<ChunkId> offered = world.client(0).unacked.front().ids;
  const SessionId thief = world.client(1).session;
  const std::string before = world.fingerprint();
  world.feed(events::Released{thief, {1}, {ids[0], offered[0]}});
  world.feed(events::Acked{thief, world.client(0).unacked.front().request, offered});
  world.feed(events::Nacked{thief, world.client(0).unacked.front().request, offered});
  world.feed(events::GrantUnsent{thief, world.client(0).unacked.front().request, offered, "no"});
  CHECK(world.fingerprint() == before);
}

TEST_CASE("F05: a hang-up frees nothing and a forked child keeps the dead one's memory charged") {
  World world(two_jobs(), two_places());
  world.start();
  world.attach(0);
  world.take(0, 2);
  world.apply({Kind::hang_up, 0});
  CHECK(world.used(0) == 64_MiB);
  CHECK(world.core().pool().orphan == 64_MiB);
  CHECK(world.core().job_page(world.job_of(0)).in_force == 2 * kTestChunk.value);
  world.apply({Kind::die, 0});
  world.work();
  for (int i = 0; i < 10; ++i)
    read_device(world);  // the child still has it: no timer ends that
  CHECK(world.used(0) == 64_MiB);
  world.apply({Kind::memory_back, 0});
  read_device(world);
  CHECK(world.used(0) == 0_B);
}

TEST_CASE("F05: room that another dead one gave back does not free what a child still holds") {
  World world(two_jobs(), two_places());
  world.start();
  world.attach(0);
  world.attach(1);
  world.take(0, 1);
  world.take(1, 2);
  world.apply({Kind::die, 0});
  world.work();
  read_device(world);
  world.apply({Kind::die, 1});
  world.apply({Kind::memory_back, 1});
  world.work();
  read_device(world);
  CHECK(world.used(1) == 0_B);
  CHECK(world.used(0) == 32_MiB);
}

TEST_CASE("F16: a re-attaching client gets back what it had, and only that") {
  World world(two_jobs(), {{"a", 1000}, {"b", 2000}});
  world.start();
  world.attach(0);
  world.attach(1);
  const std::vector<ChunkId> mine = world.take(0, 2);
  const std::vector<ChunkId> others = world.take(1, 1);
  const Client client = world.client(0);
  world.apply({Kind::hang_up, 0});
  static_cast<void>(world.take_actions<actions::Welcome>());
  events::SessionWanted wanted;
  wanted.connection = {0};
  wanted.job = "a";
  wanted.resume = client.token;
  wanted.claimed = {mine[0], others[0], ChunkId{12345}};

  wanted.peer = {1000, {}, client.pid + 1, 7};  // another process with a stolen token
  world.feed(wanted);
  CHECK(world.take_actions<actions::RefuseHello>().size() == 1);
  wanted.peer = {1001, {}, client.pid, 7};
  world.feed(wanted);
  CHECK(world.take_actions<actions::RefuseHello>().size() == 1);
  CHECK(world.core().pool().orphan == 64_MiB);

  wanted.peer = {1000, {}, client.pid, 7};
  world.let_go(0, mine[1]);
  world.feed(wanted);
  const auto welcome = world.take_actions<actions::Welcome>();
  REQUIRE(welcome.size() == 1);
  CHECK(welcome[0].resumed);
  CHECK(welcome[0].session == client.session);
  CHECK(world.core().book().find(mine[0])->state == ChunkState::held);
  CHECK(world.core().book().find(mine[1])->state == ChunkState::free);  // not listed: returned
  CHECK(world.core().book().find(others[0])->lessee == world.client(1).session);
}

TEST_CASE("F26: a client that cannot take a grant gives it back at once") {
  World world(two_jobs(), two_places());
  world.start();
  world.attach(0);
  world.apply({Kind::request, 0, 2, 2});
  world.apply({Kind::nack, 0});
  CHECK(world.used(0) == 0_B);
  CHECK(world.core().pool().free == 128_MiB);
  CHECK(world.take(0, 2).size() == 2);
}

TEST_CASE("F32: the driver has no room: the request is refused with the reason and the book is as before") {
  World world(small_setup(4, {{"a", 2, 4}, {"b", 2, 4}}, Reserve::leased), two_places());
  world.start();
  world.attach(0);
  CHECK(world.take(0, 1).size() == 1);
  const PoolFigures before = world.core().pool();
  world.device_full = true;
  CHECK(world.take(0, 2).empty());
  const Refusal refusal = world.take_refusals().at(0);
  CHECK(refusal.rule == Refusal::Rule::device_full);
  CHECK(refusal.reason.find("out of memory") != std::string::npos);
  CHECK(world.core().pool().charged == before.charged);
  CHECK(world.core().pool().free == before.free);
  CHECK(world.core().pool().chunks == before.chunks);
  world.device_full = false;
  CHECK(world.take(0, 2).size() == 2);
}

TEST_CASE("F32: a pool that cannot be made is waited for a bounded time, then it is fatal, once") {
  World world(two_jobs(), two_places());
  world.device_full = true;
  world.start();
  CHECK_FALSE(world.core().ready());
  CHECK(world.take_actions<actions::Fatal>().empty());
  CHECK(world.core().wants_tick());
  SECTION("the memory of a predecessor comes back") {
    world.device_full = false;
    world.feed(events::Tick{{world.now + 1'000'000'000}});
    world.work();
    CHECK(world.core().ready());
  }
  SECTION("it does not") {
    for (int i = 0; i < 5; ++i) {
      world.apply({Kind::tick});
      world.work();
    }
    const auto fatal = world.take_actions<actions::Fatal>();
    REQUIRE(fatal.size() == 1);
    CHECK(fatal[0].error.message.find("cannot make the pool of 128 MiB") != std::string::npos);
  }
}

TEST_CASE("F33: what could not be exported or sent goes back as it was, and the client is told") {
  World world(two_jobs(), two_places());
  world.start();
  world.attach(0);
  world.apply({Kind::request, 0, 2, 2});
  world.apply({Kind::unsent, 0});
  CHECK(world.used(0) == 0_B);
  CHECK(world.core().pool().free == 128_MiB);
  CHECK(world.take_refusals().at(0).rule == Refusal::Rule::send_failed);
  // Nobody saw them: anybody may have them as they are.
  world.attach(1);
  world.apply({Kind::request, 1, 2, 2});
  CHECK(world.client(1).unacked.size() == 1);
}

TEST_CASE("F34: a chunk that the driver does not release stays charged until the device shows its room") {
  CoreSetup setup = two_jobs();
  setup.jobs[0].on_return = ReturnRule::strict;
  World world(setup, two_places());
  world.start();
  world.attach(0);
  world.take(0, 1);
  world.apply({Kind::release_all, 0});
  world.apply({Kind::keeper_works});
  world.apply({Kind::driver_fails});
  CHECK(world.core().pool().zombie == 32_MiB);
  CHECK(world.used(0) == 32_MiB);
  read_device(world);
  CHECK(world.used(0) == 32_MiB);
}

TEST_CASE(
    "F37: bytes the driver kept are not promised: cover falls, lowest priority first, and requests say so") {
  CoreSetup setup = small_setup(4, {{"a", 2, 4, 5}, {"b", 2, 4, 0}, {"c", 0, 4}});
  setup.jobs[2].on_return = ReturnRule::strict;
  World world(setup, {{"a", 1}, {"b", 2}, {"c", 3}});
  world.start();
  world.attach(2);
  world.take(2, 1);
  world.apply({Kind::release_all, 2});
  world.apply({Kind::keeper_works});
  world.apply({Kind::driver_fails});  // 32 MiB are a ZOMBIE of c
  world.attach(0);
  world.attach(1);
  CHECK(world.core().job_page(world.job_of(0)).covered == 2 * kTestChunk.value);
  CHECK(world.core().job_page(world.job_of(1)).covered == kTestChunk.value);
  CHECK(world.take(1, 2).empty());
  CHECK(world.take_refusals().at(0).rule == Refusal::Rule::uncovered);
  CHECK(world.take(0, 2).size() == 2);
}

namespace {

// Every store of the journal, seen as the next broker would.
struct JournalWatch {
  World* world;
  std::size_t stores = 0;
  bool exact = true;
  static void at_store(void* context) {
    auto* watch = static_cast<JournalWatch*>(context);
    ++watch->stores;
    const Result<JournalImage> image = read_journal(watch->world->journal().memory());
    Bytes chunks{};
    for (const JournalImage::Lease& lease : image->chunks)
      chunks += lease.bytes;
    if (!image->damaged.empty() || chunks > 128_MiB) watch->exact = false;
  }
};

}  // namespace

TEST_CASE("F53: at every store of making and unmaking the journal is whole and its chunks fit the pool") {
  World world(two_jobs(), two_places(), false);
  JournalWatch watch{&world};
  world.journal().observe(&JournalWatch::at_store, &watch);
  world.start();
  world.attach(0);
  world.apply({Kind::request_exact, 0, 3});
  world.work();
  world.apply({Kind::ack, 0});
  world.apply({Kind::release_all, 0});
  world.work();
  CHECK(watch.exact);
  CHECK(watch.stores > 30);
}
