#include "libclient/arena.hpp"

#include <algorithm>

#include "tests/support/approx.hpp"
#include "tests/support/catch.hpp"
#include "tests/unit/libclient/model_source.hpp"

using namespace apportion;
using apportion::testing::ModelArena;
using apportion::testing::must_allocate;

namespace {

std::size_t count(const std::vector<std::string>& calls, const std::string& call) {
  return static_cast<std::size_t>(std::count(calls.begin(), calls.end(), call));
}

}  // namespace

TEST_CASE("blocks are aligned to 512 bytes, apart, and lie in the range of their size") {
  ModelArena model;
  const Address a = must_allocate(model.arena, 1_B);
  const Address b = must_allocate(model.arena, 513_B);
  const Address c = must_allocate(model.arena, 1_MiB);
  const Address d = must_allocate(model.arena, Bytes{(1 << 20) + 1});
  for (const Address block : {a, b, c, d})
    CHECK(block % 512 == 0);
  CHECK(*model.arena.size_of(a) == 512_B);
  CHECK(*model.arena.size_of(b) == 1024_B);
  CHECK(c < ModelArena::kLargeBase);
  CHECK(d >= ModelArena::kLargeBase);
  CHECK(model.broken() == "");
}

TEST_CASE("nonsense is answered with an error and changes nothing") {
  ModelArena model;
  CHECK(model.arena.allocate(0_B, 0).error().code == Errc::invalid);
  CHECK(model.arena.allocate(Bytes{~0ULL}, 0).error().code == Errc::out_of_memory);
  CHECK(model.arena.allocate(Bytes{~0ULL - 511}, 0).error().code == Errc::out_of_memory);
  CHECK(model.arena.allocate_exact(0_B).error().code == Errc::invalid);
  CHECK(model.arena.allocate_exact(Bytes{~0ULL}).error().code == Errc::out_of_memory);
  CHECK(model.source.calls.empty());

  const Address block = must_allocate(model.arena, 4096_B);
  CHECK(model.arena.deallocate(block + 512, 0).error().code == Errc::invalid);
  CHECK(model.arena.deallocate(block + 1, 0).error().code == Errc::invalid);
  CHECK(model.arena.deallocate(0x1234, 0).error().code == Errc::invalid);
  CHECK(model.arena.deallocate(~0ULL, 0).error().code == Errc::invalid);
  CHECK(model.arena.deallocate(ModelArena::kLargeBase, 0).error().code == Errc::invalid);
  CHECK(model.arena.deallocate(0, 0).ok());
  CHECK(model.arena.deallocate(block, 0).ok());
  CHECK(model.arena.deallocate(block, 0).error().code == Errc::invalid);
  CHECK(model.broken() == "");
  CHECK(model.arena.stats()->live_blocks == 0);
}

TEST_CASE("a block that spans chunks takes them in one call, side by side") {
  ModelArena model;
  const Address block = must_allocate(model.arena, 9_MiB);
  CHECK(model.source.calls == std::vector<std::string>{"map"});
  CHECK(model.source.chunks.size() == 5);
  CHECK(*model.source.chunks.begin() == block);
  CHECK(model.broken() == "");
}

TEST_CASE("growth uses the free memory beside a hole and asks only for what is missing") {
  ModelArena model;
  must_allocate(model.arena, 3_MiB);  // leaves 1 MiB of its second chunk
  must_allocate(model.arena, 5_MiB);
  CHECK(model.source.chunks.size() == 4);
  CHECK(model.broken() == "");
}

TEST_CASE("growth asks for a batch, and is content with what it needs") {
  ModelArena model(8, 2_MiB, 6);
  must_allocate(model.arena, 3_MiB);
  CHECK(model.source.chunks.size() == 6);
  must_allocate(model.arena, 10_MiB);
  CHECK(model.source.chunks.size() == 8);  // of the six it would have liked
  CHECK(model.broken() == "");
}

TEST_CASE("trim_to(0) gives back exactly the chunks without a live block, wherever they lie") {
  ModelArena model;
  std::vector<Address> blocks;
  for (int i = 0; i < 20; ++i)
    blocks.push_back(must_allocate(model.arena, 2_MiB));
  const Address small = must_allocate(model.arena, 600_KiB);
  must_allocate(model.arena, 600_KiB);
  REQUIRE(model.source.chunks.size() == 21);
  for (const int gone : {0, 1, 7, 12, 19})
    REQUIRE(model.arena.deallocate(blocks[gone], 0).ok());
  REQUIRE(model.arena.deallocate(small, 0).ok());  // its chunk keeps a live block

  CHECK(model.arena.stats()->idle_bytes == 10_MiB);
  CHECK(*model.arena.trim_to(0_B) == 10_MiB);
  CHECK(model.source.chunks.size() == 16);
  for (int i = 0; i < 20; ++i) {
    const bool gone = i == 0 || i == 1 || i == 7 || i == 12 || i == 19;
    CHECK(model.source.chunks.count(blocks[i]) == (gone ? 0 : 1));
  }
  CHECK(model.broken() == "");
  CHECK(*model.arena.trim_to(0_B) == 0_B);
}

TEST_CASE("a block half in a chunk keeps that chunk") {
  ModelArena model;
  const Address a = must_allocate(model.arena, 3_MiB);
  const Address b = must_allocate(model.arena, 3_MiB);  // shares the second chunk
  REQUIRE(model.source.chunks.size() == 3);
  REQUIRE(model.arena.deallocate(a, 0).ok());
  CHECK(*model.arena.trim_to(0_B) == 2_MiB);
  REQUIRE(model.arena.deallocate(b, 0).ok());
  CHECK(*model.arena.trim_to(0_B) == 4_MiB);
  CHECK(model.source.chunks.empty());
  CHECK(model.broken() == "");
}

TEST_CASE("trim_to(n) stops once no more than n is mapped") {
  ModelArena model;
  std::vector<Address> blocks;
  for (int i = 0; i < 10; ++i)
    blocks.push_back(must_allocate(model.arena, 2_MiB));
  for (const Address block : blocks)
    REQUIRE(model.arena.deallocate(block, 0).ok());
  CHECK(*model.arena.trim_to(20_MiB) == 0_B);
  CHECK(*model.arena.trim_to(13_MiB) == 8_MiB);
  CHECK(model.arena.stats()->pool_bytes == 12_MiB);
  CHECK(model.broken() == "");
}

TEST_CASE("R6: scattered idle chunks are stitched into one large block before any new one is asked for") {
  ModelArena model(16);
  std::vector<Address> blocks;
  for (int i = 0; i < 16; ++i)
    blocks.push_back(must_allocate(model.arena, 2_MiB));
  for (int i = 0; i < 16; i += 2)
    REQUIRE(model.arena.deallocate(blocks[i], 0).ok());
  const std::size_t maps = count(model.source.calls, "map");
  must_allocate(model.arena, 16_MiB);
  CHECK(count(model.source.calls, "map") == maps);
  CHECK(model.source.chunks.size() == 16);
  CHECK(model.arena.stats()->chunks_moved == 8);
  CHECK(model.broken() == "");
}

TEST_CASE("a refusal is handed on and leaves everything as it was") {
  ModelArena model(4);
  const Address block = must_allocate(model.arena, 5_MiB);
  const Result<Address> refused = model.arena.allocate(4_MiB, 0);
  REQUIRE(!refused.ok());
  CHECK(refused.error().code == Errc::quota);
  CHECK(refused.error().message == "the model is full");
  CHECK(model.source.chunks.size() == 3);
  CHECK(model.broken() == "");
  must_allocate(model.arena, 3_MiB);
  REQUIRE(model.arena.deallocate(block, 0).ok());
  CHECK(model.broken() == "");
}

TEST_CASE(
    "F33: where mapping fails in the driver, those addresses are never used again and the rest goes on") {
  ModelArena model;
  model.source.fail_map = Error{Errc::driver, "set access failed"};
  CHECK(model.arena.allocate(6_MiB, 0).error().message == "set access failed");
  CHECK(model.broken() == "");
  model.source.fail_map.reset();
  CHECK(must_allocate(model.arena, 6_MiB) == ModelArena::kLargeBase + (6ULL << 20));
  CHECK(model.broken() == "");
}

TEST_CASE("F34: a chunk whose unmap fails is not handed out again, and the others go on") {
  ModelArena model;
  std::vector<Address> blocks;
  for (int i = 0; i < 4; ++i)
    blocks.push_back(must_allocate(model.arena, 2_MiB));
  for (const Address block : blocks)
    REQUIRE(model.arena.deallocate(block, 0).ok());
  model.source.fail_unmap = Error{Errc::driver, "unmap failed"};
  model.source.fail_unmap_at = 1;
  CHECK(model.arena.trim_to(0_B).error().message == "unmap failed");
  CHECK(model.broken() == "");
  CHECK(model.arena.stats()->pool_bytes == 4_MiB);
  model.source.fail_unmap.reset();
  CHECK(*model.arena.trim_to(0_B) == 4_MiB);
  CHECK(model.source.chunks.size() == 1);  // the lost one
  CHECK(model.broken() == "");
}

TEST_CASE("a failed move leaves the idle chunks where they were") {
  ModelArena model(4);
  std::vector<Address> blocks;
  for (int i = 0; i < 4; ++i)
    blocks.push_back(must_allocate(model.arena, 2_MiB));
  REQUIRE(model.arena.deallocate(blocks[0], 0).ok());
  REQUIRE(model.arena.deallocate(blocks[2], 0).ok());
  model.source.fail_move = Error{Errc::driver, "no"};
  CHECK(!model.arena.allocate(4_MiB, 0).ok());
  CHECK(model.broken() == "");
  model.source.fail_move.reset();
  must_allocate(model.arena, 4_MiB);
  CHECK(model.broken() == "");
}

TEST_CASE("nothing is unmapped while the GPU cannot be synchronised") {
  ModelArena model(4);
  const Address block = must_allocate(model.arena, 2_MiB);
  REQUIRE(model.arena.deallocate(block, 0).ok());
  model.source.fail_synchronize = Error{Errc::busy, "a stream is capturing"};
  CHECK(model.arena.trim_to(0_B).error().message == "a stream is capturing");
  CHECK(model.source.chunks.size() == 1);
  CHECK(model.broken() == "");
}

TEST_CASE("an exact block has a handle of its own, goes back when it is freed, and only once") {
  ModelArena model;
  const Result<Address> block = model.arena.allocate_exact(5_MiB);
  REQUIRE(block.ok());
  CHECK(model.source.exact.at(*block) == 6_MiB);
  CHECK(*model.arena.size_of(*block) == 6_MiB);
  CHECK(model.arena.stats()->bytes_in_use == 6_MiB);
  CHECK(model.broken() == "");
  CHECK(model.arena.deallocate(*block, 0).ok());
  CHECK(model.source.exact.empty());
  CHECK(model.arena.deallocate(*block, 0).error().code == Errc::invalid);
  CHECK(model.arena.stats()->pool_bytes == 0_B);
  CHECK(model.broken() == "");
}

TEST_CASE("an exact block at the limit takes back what is idle first") {
  ModelArena model(4);
  const Address block = must_allocate(model.arena, 8_MiB);
  REQUIRE(model.arena.deallocate(block, 0).ok());
  CHECK(model.arena.allocate_exact(8_MiB).ok());
  CHECK(model.source.chunks.empty());
  CHECK(model.broken() == "");
}

TEST_CASE("an exact block whose synchronise fails stays live; one whose unmap fails is lost") {
  ModelArena model;
  const Address block = *model.arena.allocate_exact(2_MiB);
  model.source.fail_synchronize = Error{Errc::busy, "a stream is capturing"};
  CHECK(!model.arena.deallocate(block, 0).ok());
  CHECK(*model.arena.size_of(block) == 2_MiB);
  CHECK(model.broken() == "");
  model.source.fail_synchronize.reset();
  model.source.fail_unmap = Error{Errc::driver, "unmap failed"};
  CHECK(model.arena.deallocate(block, 0).error().message == "unmap failed");
  CHECK(!model.arena.size_of(block).ok());
  CHECK(model.broken() == "");
}

TEST_CASE("figures: peaks, the largest block, idle, cached and fragmentation by its definition") {
  ModelArena model;
  const Address a = must_allocate(model.arena, 3_MiB);
  const Address b = must_allocate(model.arena, 4_MiB);
  must_allocate(model.arena, 1_MiB);
  REQUIRE(model.arena.deallocate(a, 0).ok());
  const ArenaStats stats = *model.arena.stats();
  CHECK(stats.num_allocs == 3);
  CHECK(stats.live_blocks == 2);
  CHECK(stats.bytes_in_use == 5_MiB);
  CHECK(stats.peak_bytes_in_use == 8_MiB);
  CHECK(stats.largest_alloc_size == 4_MiB);
  CHECK(stats.pool_bytes == 10_MiB);
  CHECK(stats.idle_bytes == 2_MiB);
  CHECK(stats.cached_bytes == 5_MiB);
  CHECK(stats.largest_free_block_bytes == 3_MiB);
  CHECK(stats.fragmentation == Approx(2.0 / 5.0));
  REQUIRE(model.arena.deallocate(b, 0).ok());
  CHECK(model.arena.stats()->peak_pool_bytes == 10_MiB);
}

TEST_CASE("slots that a growth lost beside what it got are never used again") {
  ModelArena model(64, 2_MiB, 4);
  model.source.lose_rest = true;
  const Address first = *model.arena.allocate(2_MiB, 0);
  model.source.lose_rest = false;
  const Address second = *model.arena.allocate(2_MiB, 0);
  CHECK(second == first + (8_MiB).value);
  CHECK(model.broken() == "");
}

TEST_CASE("a device of any size gets ranges that the arena can count") {
  for (const Bytes total : {80_GiB, 400_GiB, 2048_GiB, 16384_GiB}) {
    const ArenaRanges ranges = ArenaRanges::for_device(total, 32_MiB, 2_MiB);
    CHECK(ranges.small_bytes() == std::min(total, 1024_GiB));
    CHECK(ranges.large_bytes() == std::min(total * 3, 1024_GiB));
  }
  ModelArena model(524'288, 32_MiB);  // 16 TiB
  CHECK(model.arena.allocate(8_GiB, 0).ok());
  CHECK(model.broken() == "");
}

TEST_CASE("the short lock is free whenever the source is called") {
  ModelArena model(4);
  int answered = 0;
  model.source.on_call = [&](const std::string&) { answered += model.arena.stats().ok() ? 1 : 0; };
  const Address block = must_allocate(model.arena, 4_MiB);
  REQUIRE(model.arena.deallocate(block, 0).ok());
  REQUIRE(model.arena.trim_to(0_B).ok());
  REQUIRE(model.arena.deallocate(*model.arena.allocate_exact(2_MiB), 0).ok());
  CHECK(answered == static_cast<int>(model.source.calls.size()));
  CHECK(model.source.calls ==
        std::vector<std::string>{"map", "synchronize", "unmap", "map_exact", "synchronize", "unmap_exact"});
}

TEST_CASE("F48: a call from inside the slow path of the same thread is told so and does not deadlock") {
  ModelArena model;
  Errc grow = Errc::invalid;
  Errc trim = Errc::invalid;
  model.source.on_call = [&](const std::string&) {
    model.source.on_call = nullptr;
    grow = model.arena.allocate(8_MiB, 0).error().code;
    trim = model.arena.trim_to(0_B).error().code;
  };
  must_allocate(model.arena, 4_MiB);
  CHECK(grow == Errc::busy);
  CHECK(trim == Errc::busy);
  CHECK(model.broken() == "");
}

TEST_CASE("reserve maps what is missing, and what is allocated up to it asks for nothing any more") {
  ModelArena model;
  const Address block = must_allocate(model.arena, 3_MiB);
  REQUIRE(model.arena.reserve(31_MiB).ok());
  CHECK(model.arena.stats()->pool_bytes == 32_MiB);
  CHECK(model.arena.stats()->bytes_in_use == 3_MiB);
  REQUIRE(model.arena.reserve(32_MiB).ok());
  const std::size_t maps = count(model.source.calls, "map");
  CHECK(maps == 2);
  std::vector<Address> small;
  while (small.size() < 28)  // MiB, in the other range: its chunks are moved
    small.push_back(must_allocate(model.arena, 1_MiB));
  CHECK(count(model.source.calls, "map") == maps);
  CHECK(model.arena.stats()->pool_bytes == 32_MiB);
  CHECK(model.broken() == "");
  for (const Address each : small)
    REQUIRE(model.arena.deallocate(each, 0).ok());
  CHECK(*model.arena.trim_to(0_B) == 28_MiB);
  REQUIRE(model.arena.deallocate(block, 0).ok());
}

TEST_CASE("a reservation that cannot be had takes nothing") {
  ModelArena model(4);
  CHECK(model.arena.reserve(9_MiB).error().code == Errc::quota);
  CHECK(model.source.chunks.empty());
  CHECK(model.arena.reserve(Bytes{1ULL << 50}).error().code == Errc::out_of_memory);
  CHECK(model.broken() == "");
  CHECK(model.arena.reserve(0_B).ok());
  model.source.fail_map = Error{Errc::driver, "set access failed"};
  CHECK(!model.arena.reserve(8_MiB).ok());
  model.source.fail_map.reset();
  CHECK(model.broken() == "");
  CHECK(model.arena.reserve(8_MiB).ok());
  CHECK(model.broken() == "");
}
