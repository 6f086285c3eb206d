// What the tests of overwriting share: a world whose helper is in the test's hands.
#pragma once

#include <set>
#include <utility>
#include <vector>

#include "tests/unit/broker/world.hpp"

namespace apportion::testing {

// A world whose helper does nothing until it is told to, and whose driver is prompt.
struct Story {
  explicit Story(CoreSetup setup, std::vector<Place> places) : world(std::move(setup), std::move(places)) {
    world.instant_helper = false;
    world.start();
  }
  // What one request had overwritten.
  std::size_t scrubs_of_taking(std::size_t place, std::uint64_t chunks) {
    static_cast<void>(world.take_actions<actions::ScrubChunks>());
    got = world.take(place, chunks);
    std::size_t count = 0;
    for (const actions::ScrubChunks& scrub : world.take_actions<actions::ScrubChunks>())
      count += scrub.chunks.size();
    return count;
  }
  void give_back(std::size_t place) {
    world.apply({Step::Kind::release_all, place});
    world.work();
  }
  // Ten seconds, and what comes of them.
  void idle() {
    world.apply({Step::Kind::tick});
    world.apply({Step::Kind::tick});
  }
  World world;
  std::vector<ChunkId> got;
};

inline std::set<ChunkId> as_set(const std::vector<ChunkId>& ids) {
  return {ids.begin(), ids.end()};
}

inline CoreSetup three_chunks() {
  return small_setup(3, {{"a", 1, 3}, {"b", 1, 3}});
}

}  // namespace apportion::testing
