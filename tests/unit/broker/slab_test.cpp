// Slabs in the core: memory of a job with transport = "ipc" is made by the helper, for one grant, and goes
// with it. Clients, helper and device are a test's hands (World).
#include <algorithm>

#include "tests/support/catch.hpp"
#include "tests/unit/broker/world.hpp"

using namespace apportion;
using namespace apportion::testing;
using Kind = Step::Kind;

namespace {

// Four chunks; job "a" takes slabs, job "b" chunks.
struct Story {
  explicit Story(std::uint64_t chunks = 4, Scrub scrub = Scrub::cross_owner)
      : world(setup(chunks, scrub), places()) {
    world.instant_helper = false;
    world.start();
    world.attach(0);
  }
  static CoreSetup setup(std::uint64_t chunks, Scrub scrub) {
    CoreSetup setup = small_setup(chunks, {{"a", 1, chunks}, {"b", 1, chunks}});
    setup.jobs[0].transport = Transport::ipc;
    for (JobRule& job : setup.jobs)
      job.scrub = scrub;
    setup.own_uid = 1;
    return setup;
  }
  static std::vector<Place> places() { return {{"a", 1}, {"a", 1}, {"b", 2}}; }

  // One slab of `granules` x 16 MiB, held.
  ChunkId slab(std::size_t place, std::uint64_t granules) {
    world.apply({Kind::request_exact, place, granules});
    world.work();
    REQUIRE(world.client(place).unacked.size() == 1);
    const std::vector<ChunkId> ids = world.client(place).unacked[0].ids;
    REQUIRE(ids.size() == 1);
    world.apply({Kind::ack, place});
    return ids[0];
  }
  // One answer of keeper or driver; false: nothing is asked of them.
  bool move_on() {
    for (const Step& step : world.steps({1}, false)) {
      if (step.kind != Kind::keeper_works && step.kind != Kind::driver_works) continue;
      world.apply(step);
      return true;
    }
    return false;
  }
  // Until the helper is asked to make the slab.
  void until_asked() {
    while (world.core().book().slabs() == 0_B)
      REQUIRE(move_on());
  }
  [[nodiscard]] ChunkState state_of(ChunkId id) const {
    const BookedChunk* slab = world.core().book().find(id);
    return slab == nullptr ? ChunkState::vacant : slab->state;
  }
  // The device is looked at, and what follows is done.
  void look() {
    world.apply({Kind::read_device});
    world.work();
  }
  [[nodiscard]] bool whole() {
    return world.core().pool().free == kTestChunk * 4 && world.core().pool().loose == 0_B;
  }
  World world;
};

template <typename T>
std::size_t count(const std::vector<T>& all) {
  return all.size();
}

}  // namespace

TEST_CASE(
    "slab: chunks are unmade for its bytes; it is made and overwritten, then granted, charged throughout") {
  Story story;
  static_cast<void>(story.world.take_actions<actions::Log>());
  story.world.apply({Kind::request_exact, 0, 3});
  CHECK(story.world.core().book().in_state(ChunkState::unmaking) == 64_MiB);
  story.until_asked();  // 16 MiB of them stay loose
  CHECK(story.world.core().book().slabs_in(ChunkState::making) == 48_MiB);
  story.world.apply({Kind::helper_works});  // made
  CHECK(story.world.core().book().slabs_in(ChunkState::scrub) == 48_MiB);
  CHECK(story.world.used(0) == 48_MiB);
  CHECK(story.world.client(0).unacked.empty());
  story.world.apply({Kind::helper_works});  // overwritten
  const auto grants = story.world.take_actions<actions::SendGrant>();
  REQUIRE(count(grants) == 1);
  CHECK(grants[0].slabs);
  CHECK(grants[0].bytes == 48_MiB);
  CHECK(story.world.core().pool().loose == 16_MiB);
}

TEST_CASE("slab: a request that is not exact is one slab per chunk of the pool") {
  Story story;
  CHECK(count(story.world.take(0, 3)) == 3);
  CHECK(story.world.core().book().slabs_in(ChunkState::held) == 96_MiB);
  CHECK(story.world.used(0) == 96_MiB);
}

TEST_CASE("slab: scrub = never takes it as it was made, and gives it back so") {
  Story story(4, Scrub::never);
  const ChunkId id = story.slab(0, 2);
  story.world.apply({Kind::release_all, 0});
  CHECK(story.state_of(id) == ChunkState::unmaking);
  CHECK(story.world.take_actions<actions::ScrubChunks>().empty());
}

TEST_CASE("slab: a return is overwritten, freed and remade into chunks; RELEASED comes when it is loose") {
  Story story;
  const ChunkId id = story.slab(0, 2);
  story.world.apply({Kind::release_all, 0});
  CHECK(story.state_of(id) == ChunkState::scrub);
  CHECK(story.world.used(0) == 32_MiB);
  story.world.apply({Kind::helper_works});
  CHECK(story.state_of(id) == ChunkState::unmaking);
  CHECK(story.world.take_actions<actions::SendReleased>().empty());
  story.world.apply({Kind::helper_works});
  CHECK(story.world.used(0) == 0_B);
  CHECK(count(story.world.take_actions<actions::SendReleased>()) == 1);
  story.world.work();
  CHECK(story.whole());
}

TEST_CASE("slab: a grant that is not sent or not taken, and an order given up, leave no slab") {
  for (const Kind end : {Kind::unsent, Kind::nack, Kind::detach}) {
    Story story;
    story.world.apply({Kind::request_exact, 0, 2});
    story.world.work();
    REQUIRE(story.world.client(0).unacked.size() == 1);
    story.world.apply({end, 0});
    story.world.work();
    CHECK(story.world.core().book().slabs() == 0_B);
    CHECK(story.whole());
  }
  for (const Kind end : {Kind::hang_up, Kind::detach, Kind::die}) {
    for (int steps = 0; steps < 4; ++steps) {
      Story story;
      story.world.apply({Kind::request_exact, 0, 1});
      for (int i = 0; i < steps; ++i)
        if (!story.move_on()) story.world.apply({Kind::helper_works});
      story.world.apply({end, 0});
      story.world.work();
      CHECK(story.world.core().book().slabs() == 0_B);
      CHECK(story.whole());
    }
  }
}

TEST_CASE("F01: where the device names nobody, a dead holder's slab is freed long after, not at once") {
  Story story;
  const ChunkId id = story.slab(0, 2);
  story.world.apply({Kind::die, 0});
  const auto nameless = [&] {
    events::DeviceRoom room{256_MiB, 1_GiB, std::nullopt, {story.world.now}};
    room.helper = true;
    story.world.feed(room);
    return count(story.world.take_actions<actions::FreeSlab>());
  };
  story.world.now += 5'000'000'000;
  CHECK(nameless() == 0);
  story.world.apply({Kind::memory_back, 0});
  story.world.now += 30'000'000'000;
  CHECK(nameless() == 1);
  CHECK(story.state_of(id) == ChunkState::zombie);
}

TEST_CASE(
    "F01: a dead holder's slab is freed when the device names the process no more, loose when it shows the "
    "room") {
  Story story;
  const ChunkId id = story.slab(0, 2);
  story.world.apply({Kind::die, 0});
  CHECK(story.state_of(id) == ChunkState::zombie);
  CHECK(story.world.used(0) == 32_MiB);
  CHECK(story.world.core().wants_tick());
  story.look();  // it is named still: rule 35
  CHECK(story.world.take_actions<actions::FreeSlab>().empty());
  story.world.apply({Kind::memory_back, 0});
  story.world.apply({Kind::read_device});
  CHECK(count(story.world.take_actions<actions::FreeSlab>()) == 1);
  story.look();  // still with the helper, as far as the device shows: its room proves nothing yet
  CHECK(story.state_of(id) == ChunkState::zombie);
  story.look();
  CHECK(story.state_of(id) == ChunkState::vacant);
  CHECK(story.world.used(0) == 0_B);
  CHECK(story.whole());
}

TEST_CASE("F01: the room of a slab that the helper still has does not pass for another dead client's chunk") {
  Story story;
  story.world.attach(2);
  const std::vector<ChunkId> chunk = story.world.take(2, 1);
  const ChunkId slab = story.slab(0, 2);
  story.world.apply({Kind::die, 2});
  story.world.work();
  story.world.apply({Kind::die, 0});
  // The device lets go of neither.
  for (int i = 0; i < 3; ++i)
    story.look();
  CHECK(story.state_of(chunk[0]) == ChunkState::zombie);
  CHECK(story.state_of(slab) == ChunkState::zombie);
  story.world.apply({Kind::memory_back, 0});  // of the slab's holder only
  for (int i = 0; i < 3; ++i)
    story.look();
  CHECK(story.state_of(slab) == ChunkState::vacant);
  CHECK(story.state_of(chunk[0]) == ChunkState::zombie);
}

TEST_CASE(
    "F34: a slab that cannot be freed stays charged, is tried again, and no room is taken for its own") {
  Story story;
  const ChunkId id = story.slab(0, 2);
  story.world.apply({Kind::release_all, 0});
  story.world.apply({Kind::helper_works});  // overwritten
  story.world.apply({Kind::helper_fails});
  CHECK(story.state_of(id) == ChunkState::zombie);
  CHECK(count(story.world.take_actions<actions::SendReleased>()) == 1);
  story.look();
  CHECK(story.state_of(id) == ChunkState::zombie);
  CHECK(story.world.used(0) == 32_MiB);
  for (int i = 0; i < 8; ++i)
    story.look();  // a second each
  CHECK(story.state_of(id) == ChunkState::vacant);
  CHECK(story.whole());
}

TEST_CASE("F32: a helper that cannot make a slab: refused with its words, and the pool is whole again") {
  Story story;
  story.world.apply({Kind::request_exact, 0, 2});
  story.until_asked();
  story.world.apply({Kind::helper_fails});
  const std::vector<Refusal> refusals = story.world.take_refusals();
  REQUIRE(refusals.size() == 1);
  CHECK(refusals[0].rule == Refusal::Rule::helper_failed);
  CHECK(refusals[0].reason.find("the helper could not make a slab (cuMemAlloc failed)") != std::string::npos);
  CHECK(story.world.used(0) == 0_B);
  story.world.work();
  CHECK(story.whole());
}

TEST_CASE(
    "F52: the helper dies: each holder hears of its slabs, which count until they are closed and shown") {
  Story story;
  story.world.attach(1);
  story.world.attach(2);
  const std::vector<ChunkId> chunks = story.world.take(2, 1);
  const ChunkId one = story.slab(0, 2);
  const ChunkId other = story.slab(1, 1);
  static_cast<void>(story.world.take_actions<actions::Log>());
  story.world.apply({Kind::helper_dies});
  const std::set<ChunkId> expected_one{one};
  CHECK(story.world.client(0).lost == expected_one);
  CHECK(story.world.client(1).lost == std::set<ChunkId>{other});
  CHECK(story.world.used(0) == 48_MiB);
  CHECK(story.state_of(one) == ChunkState::zombie);
  CHECK(story.state_of(chunks[0]) == ChunkState::held);  // chunks are the broker's own
  story.look();
  story.look();
  CHECK(story.state_of(one) == ChunkState::zombie);  // open still
  // The first holder lets go; a release of what is lost is nothing of its.
  story.world.apply({Kind::close_lost, 0});
  story.world.feed(events::Released{story.world.client(0).session, {99}, {one}});
  const auto released = story.world.take_actions<actions::SendReleased>();
  REQUIRE(count(released) == 1);
  CHECK(released[0].unknown == std::vector<ChunkId>{one});
  story.look();
  CHECK(story.state_of(one) == ChunkState::vacant);
  CHECK(story.state_of(other) == ChunkState::zombie);
  // The session goes on, with a new helper.
  story.slab(0, 2);
}

TEST_CASE(
    "F52: the holder's line says how much of which job is lost, why, and what to do; the log has it too") {
  Story story;
  story.slab(0, 2);
  static_cast<void>(story.world.take_actions<actions::Log>());
  story.world.apply({Kind::helper_dies});
  bool told = false;
  bool logged = false;
  for (const Action& action : story.world.take_all()) {
    if (const auto* lost = std::get_if<actions::SlabsLost>(&action))
      told =
          lost->why ==
          "1 slab of job \"a\" lost with all contents: the broker's helper died (signal 9); free what is in "
          "them and allocate anew";
    if (const auto* line = std::get_if<actions::Log>(&action)) logged = logged || line->event == "lost";
  }
  CHECK(told);
  CHECK(logged);
}

TEST_CASE(
    "F52: a helper that dies while it makes, overwrites or frees: refused or answered, and whole at the "
    "end") {
  for (int steps = 0; steps < 4; ++steps) {
    INFO("after " << steps << " works of the helper");
    Story story;
    story.world.apply({Kind::request_exact, 0, 2});
    story.until_asked();
    for (int done = 0; done < steps; ++done) {  // made; overwritten; given back and overwritten
      if (done == 2) story.world.apply({Kind::ack, 0});
      if (done == 2) story.world.apply({Kind::release_all, 0});
      story.world.apply({Kind::helper_works});
    }
    static_cast<void>(story.world.take_actions<actions::SendReleased>());
    story.world.apply({Kind::helper_dies});
    CHECK(count(story.world.take_refusals()) == (steps < 2 ? 1 : 0));
    if (steps == 3) CHECK(count(story.world.take_actions<actions::SendReleased>()) == 1);
    story.world.apply({Kind::close_lost, 0});
    for (int i = 0; i < 3; ++i)
      story.look();
    CHECK(story.world.used(0) == 0_B);
    CHECK(story.whole());
  }
}

TEST_CASE("F52: what was lost while its holder was away is told when it comes back") {
  Story story;
  const ChunkId id = story.slab(0, 2);
  story.world.apply({Kind::hang_up, 0});
  story.world.apply({Kind::helper_dies});
  static_cast<void>(story.world.take_actions<actions::SlabsLost>());
  story.world.apply({Kind::resume, 0});
  const auto lost = story.world.take_actions<actions::SlabsLost>();
  REQUIRE(count(lost) == 1);
  CHECK(lost[0].ids == std::vector<ChunkId>{id});
}

TEST_CASE("ipc: who cannot open a slab is refused at once, with both uids or the namespace, and what to do") {
  World world(Story::setup(2, Scrub::cross_owner), Story::places());
  world.start();
  events::SessionWanted wanted;
  wanted.job = "a";
  wanted.fresh.bytes[0] = 1;
  wanted.peer = {1, {}, 100, 7, PidNamespace::same};
  std::string expected;
  SECTION("another uid") {
    wanted.peer.uid = 1001;
    expected =
        "job \"a\" has transport = \"ipc\", which works within one user only: this program runs as uid 1001, "
        "the "
        "broker as uid 1; set transport = \"vmm\" for this job, or run both as one user";
  }
  SECTION("another PID namespace") {
    wanted.peer.pid_namespace = PidNamespace::other;
    expected =
        "job \"a\" has transport = \"ipc\", which works within one PID namespace only, and this program (uid "
        "1, as "
        "the broker) runs in another one than the broker; set transport = \"vmm\" for this job, or share the "
        "namespace (docker run --pid=host)";
  }
  SECTION("an older library") {
    wanted.knows_slabs = false;
    expected =
        "job \"a\" has transport = \"ipc\", which this program's library does not know yet (protocol 1.0); "
        "set "
        "transport = \"vmm\" for this job, or install the same version of Apportion for broker and programs";
  }
  SECTION("the same user, whose namespace we may not look at") {
    wanted.peer.pid_namespace = PidNamespace::unknown;
  }
  SECTION("another job is for all of them") {
    wanted.job = "b";
    wanted.peer = {1001, {}, 100, 7, PidNamespace::other};
    wanted.knows_slabs = false;
  }
  world.feed(wanted);
  const auto refused = world.take_actions<actions::RefuseHello>();
  REQUIRE(refused.size() == (expected.empty() ? 0 : 1));
  if (!expected.empty()) CHECK(refused[0].error.message == expected);
}
