// Idle chunks that nobody asks for: when a sweep is wanted, and what it gives back. No clock: a sweep is a
// call.
#include <thread>

#include "tests/support/catch.hpp"
#include "tests/unit/libclient/model_source.hpp"

using namespace apportion;
using namespace apportion::testing;

namespace {

constexpr Stream kStream = 0x51;

// Sweeps until none is wanted; how many that were.
int sweep_to_rest(Arena& arena) {
  int sweeps = 1;
  while (arena.sweep()) {
    REQUIRE(sweeps < 100);
    ++sweeps;
  }
  return sweeps;
}

}  // namespace

TEST_CASE("idle: a chunk that was idle at three sweeps in a row goes back, and then none is wanted") {
  ModelArena model;
  model.source.by_events = true;
  const Address block = must_allocate(model.arena, 2_MiB, kStream);
  const Address live = must_allocate(model.arena, 2_MiB, kStream);
  static_cast<void>(model.arena.take_due());
  static_cast<void>(sweep_to_rest(model.arena));
  CHECK_FALSE(model.arena.due());

  REQUIRE(model.arena.try_deallocate(block, kStream));
  CHECK(model.arena.take_due());
  CHECK_FALSE(model.arena.due());  // once
  CHECK(model.arena.sweep());
  CHECK(model.arena.sweep());
  CHECK(model.source.chunks.size() == 2);
  CHECK_FALSE(model.arena.sweep());
  CHECK(model.source.chunks.size() == 1);
  CHECK(model.source.waits[kStream] == 1);  // K4
  CHECK(model.source.synchronizes == 0);

  REQUIRE(model.arena.try_deallocate(live, kStream));
  CHECK(model.arena.due());  // the next one is noticed again
  CHECK(model.broken().empty());
}

TEST_CASE("idle: a chunk that is used between sweeps begins anew") {
  ModelArena model;
  model.source.by_events = true;
  Address block = must_allocate(model.arena, 2_MiB, kStream);
  for (int round = 0; round < 5; ++round) {
    REQUIRE(model.arena.try_deallocate(block, kStream));
    CHECK(model.arena.sweep());
    CHECK(model.arena.sweep());
    block = model.arena.try_allocate(2_MiB, kStream);
    REQUIRE(block != 0);
  }
  CHECK(model.source.chunks.size() == 1);
}

TEST_CASE("idle: what was reserved stays, until a trim takes the promise back") {
  ModelArena model;
  model.source.by_events = true;
  REQUIRE(model.arena.reserve(8_MiB).ok());
  const Address block = must_allocate(model.arena, 10_MiB, kStream);
  REQUIRE(model.arena.try_deallocate(block, kStream));
  static_cast<void>(sweep_to_rest(model.arena));
  CHECK(model.source.chunks.size() == 4);
  model.source.by_events = false;
  CHECK(*model.arena.trim_to(0_B) == 8_MiB);
}

TEST_CASE("idle: what sleeping threads keep is given up, what a busy one keeps is not") {
  ModelArena model;
  model.source.by_events = true;
  std::thread([&] {
    const Address block = must_allocate(model.arena, 4096_B, kStream);
    REQUIRE(model.arena.try_deallocate(block, kStream));
  }).join();
  REQUIRE(model.arena.stats()->magazine_bytes.value != 0);
  REQUIRE(model.source.chunks.size() == 1);
  CHECK(model.arena.take_due());
  CHECK(sweep_to_rest(model.arena) >= 4);  // one to see it asleep, three to see the chunk idle
  CHECK(model.arena.stats()->magazine_bytes.value == 0);
  CHECK(model.source.chunks.empty());

  // A thread that calls between sweeps keeps its magazines.
  Address block = must_allocate(model.arena, 4096_B, kStream);
  for (int round = 0; round < 5; ++round) {
    REQUIRE(model.arena.try_deallocate(block, kStream));
    CHECK(model.arena.sweep());
    const std::uint64_t hits = model.arena.stats()->magazine_hits;
    block = model.arena.try_allocate(4096_B, kStream);
    CHECK(model.arena.stats()->magazine_hits == hits + 1);
  }
  CHECK(model.broken().empty());
}

TEST_CASE("idle: what cannot go now does not keep the session awake") {
  ModelArena model;
  model.source.by_events = true;
  const Address block = must_allocate(model.arena, 2_MiB, kStream);
  REQUIRE(model.arena.try_deallocate(block, kStream));
  REQUIRE(model.arena.stream_gone(kStream).ok());
  CHECK(sweep_to_rest(model.arena) == 3);
  CHECK(model.source.chunks.size() == 1);
}
