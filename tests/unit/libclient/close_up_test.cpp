// A range in pieces: idle chunks between its holes do not stand in the way of a long run.
#include "libclient/arena.hpp"
#include "tests/support/catch.hpp"
#include "tests/unit/libclient/model_source.hpp"

using namespace apportion;
using apportion::testing::ModelArena;
using apportion::testing::ModelSource;
using apportion::testing::must_allocate;

namespace {

// Nine places for large chunks of 2 MiB. Places 2 and 6 are idle, 4 is live, the rest are holes: no run of
// four, nor a hole of three.
struct InPieces {
  InPieces() : source(2_MiB, 8), arena(ranges(), source) {
    std::vector<Address> blocks;
    for (int i = 0; i < 8; ++i)
      blocks.push_back(must_allocate(arena, 2_MiB));
    for (const std::size_t given_back : {0, 1, 3, 5, 7})
      REQUIRE(arena.deallocate(blocks[given_back], 0).ok());
    REQUIRE(arena.trim_to(0_B).ok());
    for (const std::size_t idle : {2, 6})
      REQUIRE(arena.deallocate(blocks[idle], 0).ok());
    live = blocks[4];
  }
  static ArenaRanges ranges() {
    ArenaRanges ranges = ModelArena::ranges(8, 2_MiB, 1, true);
    ranges.large_slots = 9;
    return ranges;
  }
  [[nodiscard]] std::string broken() {
    if (!source.faults.empty()) return source.faults.front();
    const Status status = arena.check();
    return status.ok() ? std::string{} : status.error().message;
  }

  ModelSource source;
  Arena arena;
  Address live = 0;
};

}  // namespace

TEST_CASE(
    "close up: a block gets a run although idle chunks lie between the holes, and leases what is missing") {
  InPieces pieces;
  const Result<Address> block = pieces.arena.allocate(8_MiB, 0);
  REQUIRE(block.ok());
  CHECK(pieces.broken() == "");
  CHECK(pieces.source.chunks.size() == 5);  // the live one and four
  CHECK(pieces.source.chunks.contains(pieces.live));
  CHECK(pieces.arena.stats()->chunks_moved >= 2);
}

TEST_CASE("close up: so does an exact block, and a reservation") {
  InPieces exact;
  CHECK(exact.arena.allocate_exact(6_MiB).ok());
  CHECK(exact.broken() == "");
  InPieces reserved;
  CHECK(reserved.arena.reserve(12_MiB).ok());
  CHECK(reserved.broken() == "");
}

TEST_CASE("close up: a move that fails leaves what is mapped in use, and the block is refused") {
  for (const bool lost : {false, true}) {
    InPieces pieces;
    pieces.source.fail_move = Error{lost ? Errc::driver : Errc::system, "the driver will not"};
    CHECK_FALSE(pieces.arena.allocate(8_MiB, 0).ok());
    pieces.source.fail_move.reset();
    CHECK(pieces.broken() == "");
    CHECK(pieces.arena.try_allocate(2_MiB, 0) != 0);
    CHECK(pieces.arena.try_allocate(2_MiB, 0) != 0);
  }
}

TEST_CASE("close up: nothing moves while a stream is captured") {
  InPieces pieces;
  REQUIRE(pieces.arena.graph_pool_begin(0x500, 0).ok());
  const std::set<Address> before = pieces.source.chunks;
  CHECK_FALSE(pieces.arena.allocate(8_MiB, 0).ok());
  CHECK(pieces.source.chunks == before);
  CHECK(pieces.broken() == "");
}
