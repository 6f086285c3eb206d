#include "libclient/offset_inline.hpp"

#include "tests/support/catch.hpp"

using namespace apportion;

namespace {

// 64 slots of 4096 units, the first `slots` of them mapped.
struct Fixture {
  explicit Fixture(std::uint32_t slots) : blocks(64, 4096, 0) {
    OffsetAllocator::Placement place;
    REQUIRE(blocks.plan(slots * 4096, kClean, 1, place));
    REQUIRE(place.needed == slots);
    give(blocks.finish(place, slots * 4096, slots, 0, false));
  }
  NodeId take(std::uint32_t units) {
    const NodeId id = blocks.allocate(units, kClean);
    REQUIRE(id != kNoNode);
    return id;
  }
  void give(NodeId id) { blocks.release(id, kClean, 0); }

  OffsetAllocator blocks;
};

}  // namespace

TEST_CASE("bins: floors and sizes agree, grow, and are at most 1/32 apart") {
  for (std::uint32_t bin = 1; bin < kBins; ++bin) {
    CHECK(bin_of(bin_floor(bin)) == bin);
    if (bin + 1 < kBins) {
      const std::uint32_t next = bin_floor(bin + 1);
      CHECK(next > bin_floor(bin));
      CHECK(bin_of(next - 1) == bin);
      if (bin >= 32) CHECK((next - bin_floor(bin)) <= bin_floor(bin) / 32);
    }
  }
}

TEST_CASE("a free block of exactly the size is preferred to larger ones of its bin") {
  Fixture f(8);
  std::vector<NodeId> holes;
  for (const std::uint32_t units : {1007U, 1003U, 1000U, 1005U}) {  // one bin: 992 to 1007
    holes.push_back(f.take(units));
    f.take(1);  // keeps them apart
  }
  const std::uint32_t exact = f.blocks.node(holes[2]).offset;
  for (const NodeId hole : holes)
    f.give(hole);
  CHECK(f.blocks.node(f.take(1000)).offset == exact);
  CHECK(f.blocks.check() == "");
}

TEST_CASE("the tightest of the first eight entries of the bin is taken before a larger bin") {
  Fixture f(8);
  const NodeId tight = f.take(1001);
  f.take(1);
  const NodeId loose = f.take(1007);
  f.take(1);
  const std::uint32_t offset = f.blocks.node(tight).offset;
  f.give(tight);
  f.give(loose);
  CHECK(f.blocks.node(f.take(1000)).offset == offset);
}

TEST_CASE("the whole bin is searched before a request that only its last entry fits is refused") {
  Fixture f(8);
  const NodeId fits = f.take(1007);
  f.take(1);
  std::vector<NodeId> small;
  for (int i = 0; i < 20; ++i) {
    small.push_back(f.take(993));
    f.take(1);
  }
  while (f.blocks.allocate(992, kClean) != kNoNode) {
  }
  const std::uint32_t offset = f.blocks.node(fits).offset;
  f.give(fits);
  for (const NodeId id : small)
    f.give(id);  // all in front of it
  CHECK(f.blocks.node(f.take(1000)).offset == offset);
  CHECK(f.blocks.allocate(1000, kClean) == kNoNode);
}

TEST_CASE("blocks split and join again with both neighbours") {
  Fixture f(2);
  const NodeId a = f.take(100);
  const NodeId b = f.take(200);
  const NodeId c = f.take(300);
  f.give(a);
  f.give(c);
  CHECK(f.blocks.check() == "");
  f.give(b);
  CHECK(f.blocks.check() == "");
  CHECK(f.blocks.largest_free() == 8192);
}

TEST_CASE("a plan that came to nothing leaves a hole; retired slots are never planned again") {
  Fixture f(1);
  OffsetAllocator::Placement place;
  REQUIRE(f.blocks.plan(3 * 4096, kClean, 1, place));
  CHECK(place.needed == 2);  // beside the free slot
  CHECK(f.blocks.finish(place, 3 * 4096, 0, 0, false) == kNoNode);
  CHECK(f.blocks.check() == "");
  REQUIRE(f.blocks.plan(3 * 4096, kClean, 1, place));
  CHECK(f.blocks.finish(place, 3 * 4096, 0, 2, false) == kNoNode);
  CHECK(f.blocks.check() == "");
  REQUIRE(f.blocks.plan(3 * 4096, kClean, 1, place));
  CHECK(place.slot == 3);
  CHECK(f.blocks.finish(place, 3 * 4096, 3, 0, false) != kNoNode);
  CHECK(f.blocks.check() == "");
}

TEST_CASE("a hole between two free blocks is filled when that needs fewest chunks") {
  OffsetAllocator blocks(8, 4096, 0);
  OffsetAllocator::Placement place;
  REQUIRE(blocks.plan(6 * 4096, kClean, 1, place));
  blocks.release(blocks.finish(place, 6 * 4096, 6, 0, false), kClean, 0);
  auto idle = blocks.take_idle(6, false);
  REQUIRE(idle.size() == 6);
  for (const auto& slot : idle) {
    if (slot.slot == 2)
      blocks.drop(slot.node, false);
    else
      blocks.put_back(slot.node, true);
  }
  REQUIRE(blocks.check() == "");
  REQUIRE(blocks.plan(6 * 4096, kClean, 1, place));
  CHECK(place.slot == 2);
  CHECK(place.needed == 1);
  CHECK(place.left != kNoNode);
  CHECK(place.right != kNoNode);
  CHECK(blocks.finish(place, 6 * 4096, 1, 0, false) != kNoNode);
  CHECK(blocks.check() == "");
}
