// What is used under capture stays the graph's until its pool is released.
#include "libclient/arena.hpp"
#include "tests/support/catch.hpp"
#include "tests/unit/libclient/model_source.hpp"

using namespace apportion;
using apportion::testing::ModelArena;
using apportion::testing::must_allocate;

namespace {

constexpr Stream kA = 0xa000;
constexpr Stream kB = 0xb000;

}  // namespace

TEST_CASE(
    "a block freed under capture is the capture's again, and nobody else's until the pool is released") {
  const Bytes size = GENERATE(4096_B, 2_MiB);  // through magazines, were it not for the capture; and not
  ModelArena model(2);
  const std::uint64_t pool = *model.arena.graph_pool_begin(kA, 0);
  const Address block = must_allocate(model.arena, size, kA);
  REQUIRE(model.arena.deallocate(block, kA).ok());
  CHECK(model.arena.stats()->graph_pool_bytes == size);
  CHECK(must_allocate(model.arena, size, kA) == block);
  REQUIRE(model.arena.deallocate(block, kA).ok());
  REQUIRE(model.arena.graph_pool_end(kA).ok());
  for (const Stream stream : {kA, kB}) {
    for (int i = 0; i < 3; ++i) {
      const Result<Address> other = model.arena.allocate(size, stream);
      CHECK((!other.ok() || *other != block));
    }
  }
  CHECK(model.broken() == "");
  REQUIRE(model.arena.graph_pool_release(pool).ok());
  CHECK(model.arena.stats()->graph_pool_bytes == 0_B);
  REQUIRE(model.arena.trim_to(0_B).ok());
  CHECK(model.broken() == "");
}

TEST_CASE("a block allocated under capture and freed after it comes back to the pool, whatever the stream") {
  const Bytes size = GENERATE(4096_B, 2_MiB);
  ModelArena model(4);
  const std::uint64_t pool = *model.arena.graph_pool_begin(kA, 0);
  const Address block = must_allocate(model.arena, size, kA);
  REQUIRE(model.arena.graph_pool_end(kA).ok());
  REQUIRE(model.arena.deallocate(block, kB).ok());
  CHECK(model.arena.stats()->graph_pool_bytes == size);
  CHECK(model.arena.try_allocate(size, kB) != block);
  CHECK(*model.arena.graph_pool_begin(kA, pool) == pool);
  CHECK(must_allocate(model.arena, size, kA) == block);
  REQUIRE(model.arena.graph_pool_end(kA).ok());
  CHECK(model.broken() == "");
}

TEST_CASE("a block freed on a captured stream that was allocated before is kept for the graph") {
  const Bytes size = GENERATE(4096_B, 2_MiB);
  ModelArena model(2);
  const Address block = must_allocate(model.arena, size, kA);
  const std::uint64_t pool = *model.arena.graph_pool_begin(kA, 0);
  REQUIRE(model.arena.deallocate(block, kA).ok());
  REQUIRE(model.arena.graph_pool_end(kA).ok());
  CHECK(model.arena.stats()->graph_pool_bytes == size);
  CHECK(must_allocate(model.arena, size, kA) != block);
  REQUIRE(model.arena.graph_pool_release(pool).ok());
  CHECK(model.broken() == "");
}

TEST_CASE("what a stream freed before its capture is not the graph's, which may run on another stream") {
  ModelArena model(2);
  const Address before = must_allocate(model.arena, 2_MiB, kA);
  REQUIRE(model.arena.deallocate(before, kA).ok());
  const std::uint64_t pool = *model.arena.graph_pool_begin(kA, 0);
  CHECK(must_allocate(model.arena, 2_MiB, kA) != before);
  REQUIRE(model.arena.graph_pool_end(kA).ok());
  CHECK(model.arena.try_allocate(2_MiB, kA) == before);
  CHECK(pool != 0);
  CHECK(model.broken() == "");
}

TEST_CASE("chunks of a pool are neither trimmed nor moved, and its release waits for the GPU") {
  ModelArena model(2);
  const std::uint64_t pool = *model.arena.graph_pool_begin(kA, 0);
  const Address block = must_allocate(model.arena, 2_MiB, kA);
  REQUIRE(model.arena.deallocate(block, kA).ok());
  REQUIRE(model.arena.graph_pool_end(kA).ok());
  CHECK(*model.arena.trim_to(0_B) == 0_B);
  CHECK(!model.arena.allocate(4_MiB, kB).ok());
  CHECK(model.source.chunks.count(block) == 1);
  CHECK(model.arena.stats()->idle_bytes == 0_B);
  REQUIRE(model.arena.graph_pool_release(pool).ok());
  CHECK(model.arena.try_allocate(2_MiB, kA) == 0);
  CHECK(must_allocate(model.arena, 2_MiB, kA) != 0);
  CHECK(model.broken() == "");
}

TEST_CASE("while a pool is bound the context is not synchronised: the capture of any stream stays whole") {
  ModelArena model(4);
  const Address block = must_allocate(model.arena, 2_MiB, kB);
  const Address idle = must_allocate(model.arena, 2_MiB, kB);
  const Address exact = *model.arena.allocate_exact(2_MiB);
  REQUIRE(model.arena.deallocate(block, kB).ok());
  REQUIRE(model.arena.deallocate(idle, kB).ok());
  REQUIRE(model.arena.graph_pool_begin(kA, 0).ok());
  const std::uint64_t before = model.source.synchronizes;
  CHECK(must_allocate(model.arena, 2_MiB, kA) == block);  // an event on the other stream is no synchronise
  CHECK(model.source.waits == std::map<Stream, std::uint64_t>{{kB, 1}});
  CHECK(model.arena.trim_to(0_B).error().code == Errc::busy);
  CHECK(model.arena.deallocate(exact, kA).error().code == Errc::busy);
  CHECK(model.source.synchronizes == before);
  REQUIRE(model.arena.graph_pool_end(kA).ok());
  CHECK(model.arena.deallocate(exact, kA).ok());
  CHECK(model.broken() == "");
}

TEST_CASE("a block that is live when its pool is released is as any other from then on") {
  ModelArena model(1);
  const std::uint64_t pool = *model.arena.graph_pool_begin(kA, 0);
  const Address block = must_allocate(model.arena, 2_MiB, kA);
  REQUIRE(model.arena.graph_pool_end(kA).ok());
  REQUIRE(model.arena.graph_pool_release(pool).ok());
  REQUIRE(model.arena.deallocate(block, kB).ok());
  CHECK(model.arena.try_allocate(2_MiB, kB) == block);
  CHECK(model.broken() == "");
}

TEST_CASE("graph pools: nonsense is answered with an error and changes nothing") {
  ModelArena model;
  for (const Stream stream : {Stream{0}, Stream{1}, Stream{2}})
    CHECK(model.arena.graph_pool_begin(stream, 0).error().code == Errc::invalid);
  CHECK(model.arena.graph_pool_begin(kA, 77).error().code == Errc::invalid);
  CHECK(model.arena.graph_pool_end(kA).error().code == Errc::invalid);
  CHECK(model.arena.graph_pool_release(0).error().code == Errc::invalid);
  const std::uint64_t pool = *model.arena.graph_pool_begin(kA, 0);
  CHECK(model.arena.graph_pool_begin(kA, 0).error().code == Errc::invalid);
  CHECK(model.arena.graph_pool_begin(kB, pool).error().code == Errc::busy);
  CHECK(model.arena.graph_pool_release(pool).error().code == Errc::busy);
  REQUIRE(model.arena.graph_pool_end(kA).ok());
  REQUIRE(model.arena.graph_pool_release(pool).ok());
  CHECK(model.arena.graph_pool_release(pool).error().code == Errc::invalid);
  CHECK(model.arena.graph_pool_begin(kA, pool).error().code == Errc::invalid);
  std::vector<std::uint64_t> pools;
  for (Stream stream = 100; stream < 162; ++stream)
    pools.push_back(*model.arena.graph_pool_begin(stream, 0));
  CHECK(model.arena.graph_pool_begin(200, 0).error().code == Errc::busy);
  REQUIRE(model.arena.stream_gone(100).ok());  // its capture cannot go on
  CHECK(model.arena.graph_pool_release(pools[0]).ok());
  CHECK(model.broken() == "");
}
