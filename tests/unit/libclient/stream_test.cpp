// Which stream may reuse a freed block, and when.
#include <random>

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

TEST_CASE("a block is reused on the stream that freed it at once, with no synchronise") {
  ModelArena model(1);
  const Address block = must_allocate(model.arena, 2_MiB, kA);
  REQUIRE(model.arena.deallocate(block, kA).ok());
  CHECK(must_allocate(model.arena, 2_MiB, kA) == block);
  CHECK(model.source.synchronizes == 0);
}

TEST_CASE("the stream that counts is the one of the free, not the one of the allocation") {
  ModelArena model(1);
  const Address block = must_allocate(model.arena, 2_MiB, kA);
  REQUIRE(model.arena.deallocate(block, kB).ok());
  CHECK(must_allocate(model.arena, 2_MiB, kB) == block);
  CHECK(model.source.synchronizes == 0);
}

TEST_CASE("another stream gets the block only after an event on the stream that freed it") {
  ModelArena model(1);
  const Address block = must_allocate(model.arena, 2_MiB, kA);
  REQUIRE(model.arena.deallocate(block, kA).ok());
  CHECK(model.arena.try_allocate(2_MiB, kB) == 0);
  CHECK(must_allocate(model.arena, 2_MiB, kB) == block);
  CHECK(model.source.waits == std::map<Stream, std::uint64_t>{{kA, 1}});
  CHECK(model.source.synchronizes == 0);
  CHECK(model.arena.stats()->events == 1);
  CHECK(model.broken() == "");
}

TEST_CASE("what the legacy default stream freed, one handle in every context, waits for a synchronise") {
  ModelArena model(1);
  const Address block = must_allocate(model.arena, 2_MiB, kA);
  REQUIRE(model.arena.deallocate(block, 0).ok());
  CHECK(must_allocate(model.arena, 2_MiB, kB) == block);
  CHECK(model.source.synchronizes == 1);
  CHECK(model.source.events == 0);
  CHECK(model.broken() == "");
}

TEST_CASE("one event serves all frees before it, and none after it") {
  ModelArena model(3);
  Address blocks[3];
  for (Address& block : blocks)
    block = must_allocate(model.arena, 2_MiB, kA);
  REQUIRE(model.arena.deallocate(blocks[0], kA).ok());
  REQUIRE(model.arena.deallocate(blocks[1], kA).ok());
  must_allocate(model.arena, 2_MiB, kB);
  CHECK(model.source.events == 1);
  CHECK(model.arena.try_allocate(2_MiB, kB) != 0);
  REQUIRE(model.arena.deallocate(blocks[2], kA).ok());
  CHECK(model.arena.try_allocate(2_MiB, kB) == 0);
  CHECK(model.broken() == "");
}

TEST_CASE("a free during the wait is not covered by it") {
  ModelArena model(2);
  const Address first = must_allocate(model.arena, 2_MiB, kA);
  const Address second = must_allocate(model.arena, 2_MiB, kA);
  REQUIRE(model.arena.deallocate(first, kA).ok());
  model.source.on_call = [&](const std::string& call) {
    if (call != "wait_for") return;
    model.source.on_call = nullptr;
    REQUIRE(model.arena.deallocate(second, kA).ok());
  };
  // The free joins the first block with the second, so the whole is as young as the second free.
  CHECK(!model.arena.try_allocate(2_MiB, kB));
  CHECK(must_allocate(model.arena, 2_MiB, kB) != 0);
  CHECK(model.source.events + model.source.synchronizes == 2);
  CHECK(model.broken() == "");
}

TEST_CASE("where the GPU cannot be waited for, another stream gets new memory instead") {
  ModelArena model(2);
  const Address block = must_allocate(model.arena, 2_MiB, kA);
  REQUIRE(model.arena.deallocate(block, kA).ok());
  model.source.fail_synchronize = model.source.fail_wait = Error{Errc::busy, "a stream is capturing"};
  CHECK(must_allocate(model.arena, 2_MiB, kB) != block);
  CHECK(!model.arena.allocate(2_MiB, kB).ok());
  CHECK(model.arena.try_allocate(2_MiB, kA) == block);
  CHECK(model.broken() == "");
}

TEST_CASE("a stream that takes over a gone stream's handle does not inherit its frees") {
  ModelArena model(1);
  const Address block = must_allocate(model.arena, 2_MiB, kA);
  REQUIRE(model.arena.deallocate(block, kA).ok());
  REQUIRE(model.arena.stream_gone(kA).ok());
  CHECK(model.arena.try_allocate(2_MiB, kA) == 0);
  CHECK(must_allocate(model.arena, 2_MiB, kA) == block);
  CHECK(model.source.synchronizes == 1);
}

TEST_CASE("the legacy default stream is one stream under both its handles; the per-thread one is many") {
  ModelArena model(1);
  Address block = must_allocate(model.arena, 2_MiB, 0);
  REQUIRE(model.arena.deallocate(block, 0).ok());
  block = model.arena.try_allocate(2_MiB, 1);
  REQUIRE(block != 0);
  REQUIRE(model.arena.deallocate(block, 2).ok());
  CHECK(model.arena.try_allocate(2_MiB, 2) == 0);
  CHECK(must_allocate(model.arena, 2_MiB, 2) == block);
}

TEST_CASE("more streams than there are tags are served, at the price of a synchronise") {
  ModelArena model(100);
  std::vector<Address> blocks;
  for (Stream stream = 100; stream < 200; ++stream)
    blocks.push_back(must_allocate(model.arena, 2_MiB, stream));
  for (Stream stream = 100; stream < 200; ++stream) {
    REQUIRE(model.arena.deallocate(blocks[stream - 100], stream).ok());
  }
  CHECK(model.broken() == "");
  CHECK(model.arena.try_allocate(2_MiB, 100) != 0);  // has a tag
  CHECK(model.arena.try_allocate(2_MiB, 199) == 0);  // has none
  CHECK(model.arena.allocate(2_MiB, 199).ok());
  CHECK(model.arena.try_allocate(2_MiB, 150) != 0);
  CHECK(model.broken() == "");
}

TEST_CASE(
    "blocks freed side by side on two streams are one block after a synchronise, before memory is refused") {
  ModelArena model(2);
  const Address a = must_allocate(model.arena, 2_MiB, kA);
  const Address b = must_allocate(model.arena, 2_MiB, kA);
  REQUIRE(model.arena.deallocate(a, kA).ok());
  REQUIRE(model.arena.deallocate(b, kB).ok());
  CHECK(must_allocate(model.arena, 4_MiB, kA) == a);
  CHECK(model.arena.stats()->chunks_moved == 0);
  CHECK(model.broken() == "");
}

TEST_CASE("a new chunk beside what another stream freed serves the stream that asked for it") {
  ModelArena model(2);
  const Address a = must_allocate(model.arena, 2_MiB, kA);
  REQUIRE(model.arena.deallocate(a, kA).ok());
  model.source.fail_synchronize = model.source.fail_wait = Error{Errc::busy, "a stream is capturing"};
  CHECK(must_allocate(model.arena, Bytes{(1 << 20) + 512}, kB) != a);
  CHECK(model.broken() == "");
}

TEST_CASE("where a stream can have no event, the context is synchronised instead") {
  ModelArena model(1);
  const Address block = must_allocate(model.arena, 2_MiB, kA);
  REQUIRE(model.arena.deallocate(block, kA).ok());
  model.source.fail_wait = Error{Errc::driver, "a stream of another context"};
  CHECK(must_allocate(model.arena, 2_MiB, kB) == block);
  CHECK(model.source.synchronizes == 1);
  CHECK(model.broken() == "");
}

TEST_CASE("S2: four streams that take turns of 500 frees need few events, and hardly more memory than one") {
  const auto run = [](unsigned streams, ModelArena& model) {
    std::mt19937_64 random(5);
    std::vector<Address> live(64);
    std::uint64_t frees = 0;
    for (int step = 0; step < 40'000; ++step) {
      const Stream stream = 100 + step / 500 % streams;
      Address& block = live[random() % live.size()];
      if (block != 0) {
        REQUIRE(model.arena.deallocate(block, stream).ok());
        ++frees;
      }
      block = must_allocate(model.arena, Bytes{1 + random() % (4 << 20)}, stream);
    }
    return frees;
  };
  ModelArena one(2000);
  ModelArena four(2000);
  run(1, one);
  const std::uint64_t frees = run(4, four);
  INFO("peak " << to_text(one.arena.stats()->peak_pool_bytes) << ", "
               << to_text(four.arena.stats()->peak_pool_bytes) << "; events " << four.source.events << " of "
               << frees << " frees, synchronises " << four.source.synchronizes);
  CHECK(four.source.events * 1000 <= frees * 10);
  CHECK(four.arena.stats()->peak_pool_bytes.value * 100 <= one.arena.stats()->peak_pool_bytes.value * 105);
  CHECK(four.broken() == "");
}

// Random frees and allocations on five streams, with every unit of memory remembering the stream that freed
// it last and whether the GPU has been synchronised since.
TEST_CASE("no block ever reaches a stream before the GPU has passed its free on another") {
  const auto seed = static_cast<unsigned>(GENERATE(1, 2, 3));
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  constexpr std::uint32_t kChunks = 24;
  ModelArena model(kChunks);
  struct Freed {
    Stream stream = 0;
    std::uint64_t synchronizes = ~0ULL;
    std::uint64_t waits = ~0ULL;
  };
  std::map<Address, Freed> units;  // by kUnit
  struct Block {
    Address address;
    Bytes size;
  };
  std::vector<Block> live;
  int checked = 0;
  for (int step = 0; step < 2000; ++step) {
    const Stream stream = 1000 + random() % 5;
    if (random() % 100 < 52) {
      const Bytes size{random() % 4 == 0 ? 1 + random() % (3 << 20) : 1 + random() % (32 << 10)};
      const Result<Address> block = model.arena.allocate(size, stream);
      if (!block.ok()) continue;
      const Bytes whole = round_up(size, 512_B);
      live.push_back({*block, whole});
      for (std::uint64_t at = 0; at < whole.value; at += 512) {
        const auto freed = units.find(*block + at);
        if (freed == units.end()) continue;
        ++checked;
        const Freed& last = freed->second;
        if (last.stream != stream && last.synchronizes == model.source.synchronizes &&
            last.waits == model.source.waits[last.stream]) {
          FAIL("step " << step << ": reused across streams");
        }
        units.erase(freed);
      }
    } else if (!live.empty()) {
      const std::size_t index = random() % live.size();
      const Block block = live[index];
      live[index] = live.back();
      live.pop_back();
      REQUIRE(model.arena.deallocate(block.address, stream).ok());
      for (std::uint64_t at = 0; at < block.size.value; at += 512) {
        units[block.address + at] = {stream, model.source.synchronizes, model.source.waits[stream]};
      }
    } else if (random() % 4 == 0) {
      REQUIRE(model.arena.trim_to(0_B).ok());
    }
    if (step % 500 == 0) REQUIRE(model.broken() == "");
  }
  CHECK(checked > 5000);
  CHECK(model.broken() == "");
}
