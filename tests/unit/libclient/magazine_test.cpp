// Small blocks pass through the magazines of threads; nothing is lost, pinned or mixed up by it.
#include <atomic>
#include <thread>

#include "libclient/arena.hpp"
#include "tests/support/catch.hpp"
#include "tests/unit/libclient/model_source.hpp"

using namespace apportion;
using apportion::testing::ModelArena;
using apportion::testing::must_allocate;

namespace {

constexpr Stream kA = 0xa000;
constexpr Stream kB = 0xb000;

// Allocates and frees one block of each of some sizes, so that magazines have something.
void use(Arena& arena, Stream stream = 0) {
  for (const std::uint64_t bytes : {512, 4096, 20'000, 32'768}) {
    const Result<Address> block = arena.allocate({bytes}, stream);
    if (block.ok()) static_cast<void>(arena.deallocate(*block, stream).ok());
  }
}

// A thread that does `first`, sleeps until told, and ends.
class Sleeper {
 public:
  template <typename First>
  explicit Sleeper(First first)
      : thread_([this, first] {
          first();
          asleep_ = true;
          asleep_.notify_one();
          wake_.wait(false);
        }) {
    asleep_.wait(false);
  }
  ~Sleeper() {
    wake_ = true;
    wake_.notify_one();
    thread_.join();
  }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;

 private:
  std::atomic<bool> asleep_{false};
  std::atomic<bool> wake_{false};
  std::thread thread_;
};

}  // namespace

TEST_CASE("a small block freed on a stream is served from the thread's magazine, without the lock") {
  ModelArena model;
  use(model.arena);
  const ArenaStats before = *model.arena.stats();
  const Address block = model.arena.try_allocate(4096_B, 0);
  REQUIRE(block != 0);
  REQUIRE(model.arena.try_deallocate(block, 0));
  CHECK(model.arena.try_allocate(4096_B, 0) == block);
  const ArenaStats after = *model.arena.stats();
  CHECK(after.magazine_hits == before.magazine_hits + 2);
  CHECK(after.arena_hits == before.arena_hits);
  CHECK(model.broken() == "");
}

TEST_CASE("figures: what magazines keep is cached, not in use, and counts as freed") {
  ModelArena model;
  const Address block = must_allocate(model.arena, 4096_B);
  const Address other = must_allocate(model.arena, 20'000_B);
  CHECK(model.arena.stats()->bytes_in_use == 4096_B + 20'480_B);
  CHECK(model.arena.stats()->live_blocks == 2);
  REQUIRE(model.arena.deallocate(block, 0).ok());
  const ArenaStats stats = *model.arena.stats();
  CHECK(stats.bytes_in_use == 20'480_B);
  CHECK(stats.peak_bytes_in_use == 4096_B + 20'480_B);
  CHECK(stats.live_blocks == 1);
  CHECK(stats.magazine_bytes >= 4096_B);
  CHECK(stats.cached_bytes + stats.bytes_in_use == stats.pool_bytes);
  REQUIRE(model.arena.deallocate(other, 0).ok());
  CHECK(model.arena.stats()->num_allocs == 2);
  CHECK(model.broken() == "");
}

TEST_CASE("a block that a magazine keeps is not live: a second free and its size are refused") {
  ModelArena model;
  const Address block = must_allocate(model.arena, 4096_B);
  REQUIRE(model.arena.deallocate(block, 0).ok());
  CHECK(model.arena.deallocate(block, 0).error().code == Errc::invalid);
  CHECK(model.arena.deallocate(block, kA).error().code == Errc::invalid);
  CHECK(!model.arena.size_of(block).ok());
  CHECK(model.broken() == "");
}

TEST_CASE("a block kept for one stream never reaches another before the GPU has passed it") {
  ModelArena model(1);
  std::vector<Address> blocks;
  while (const Address block = model.arena.try_allocate(4096_B, kA))
    blocks.push_back(block);
  blocks.push_back(must_allocate(model.arena, 4096_B, kA));
  while (const Address block = model.arena.try_allocate(4096_B, kA))
    blocks.push_back(block);
  for (const Address block : blocks)
    REQUIRE(model.arena.deallocate(block, kA).ok());
  CHECK(model.arena.try_allocate(4096_B, kB) == 0);
  CHECK(must_allocate(model.arena, 4096_B, kB) != 0);
  CHECK(model.source.waits[kA] == 1);
  CHECK(model.source.synchronizes == 0);
  CHECK(model.broken() == "");
}

TEST_CASE("a stream that takes over a gone stream's handle gets nothing that magazines kept for it") {
  ModelArena model(1);
  const Address block = must_allocate(model.arena, 4096_B, kA);
  {
    const Sleeper other([&] { use(model.arena, kA); });
    REQUIRE(model.arena.deallocate(block, kA).ok());
    REQUIRE(model.arena.stats()->magazine_bytes > 0_B);
    REQUIRE(model.arena.stream_gone(kA).ok());
    CHECK(model.arena.stats()->magazine_bytes == 0_B);
    CHECK(model.source.synchronizes == 0);
  }
  const Address fresh = must_allocate(model.arena, 4096_B, kA);
  CHECK((fresh != block || model.source.synchronizes == 1));
  CHECK(model.broken() == "");
}

TEST_CASE("a sleeping thread pins nothing, with the kernel's barrier and without one") {
  const bool membarrier = GENERATE(true, false);
  ModelArena model(64, 2_MiB, 1, membarrier);
  const Sleeper sleeper([&] { use(model.arena); });
  REQUIRE(model.arena.stats()->magazine_bytes > 0_B);
  CHECK(*model.arena.trim_to(0_B) == 2_MiB);
  CHECK(model.source.chunks.empty());
  CHECK(model.arena.stats()->magazine_bytes == 0_B);
  CHECK(model.broken() == "");
}

TEST_CASE("what a sleeping thread keeps serves others before the GPU or the broker is asked") {
  ModelArena model(1);
  std::vector<Address> blocks;
  const Sleeper sleeper([&] {
    blocks.push_back(*model.arena.allocate(32_KiB, 0));
    while (const Address block = model.arena.try_allocate(32_KiB, 0))
      blocks.push_back(block);
    for (int i = 0; i < 6; ++i) {
      static_cast<void>(model.arena.deallocate(blocks.back(), 0).ok());
      blocks.pop_back();
    }
  });
  const std::size_t calls = model.source.calls.size();
  CHECK(must_allocate(model.arena, 32_KiB) != 0);
  CHECK(must_allocate(model.arena, 16_KiB) != 0);
  CHECK(model.source.calls.size() == calls);
  CHECK(model.broken() == "");
}

TEST_CASE("threads that come and go leave their magazines to later ones, and nothing is lost") {
  ModelArena model;
  for (int thread = 0; thread < 150; ++thread) {
    std::thread([&] {
      use(model.arena);
      use(model.arena);
    }).join();
  }
  const std::uint64_t hits = model.arena.stats()->magazine_hits;
  CHECK(hits >= 150 * 4);  // the later threads' second rounds too
  REQUIRE(model.arena.trim_to(0_B).ok());
  CHECK(model.source.chunks.empty());
  CHECK(model.broken() == "");
}

TEST_CASE("blocks allocated by one thread and freed by another come back") {
  ModelArena model(2);
  for (int round = 0; round < 200; ++round) {
    std::array<Address, 64> blocks{};
    for (Address& block : blocks)
      block = must_allocate(model.arena, 8_KiB);
    std::thread([&] {
      for (const Address block : blocks)
        if (!model.arena.deallocate(block, 0).ok()) std::abort();
    }).join();
  }
  CHECK(model.arena.stats()->live_blocks == 0);
  CHECK(model.arena.stats()->pool_bytes <= 4_MiB);
  CHECK(model.broken() == "");
}

TEST_CASE("more streams than a thread has magazines for are served, each with its own blocks") {
  ModelArena model;
  for (int round = 0; round < 400; ++round) {
    const Stream stream = 100 + round % 7;
    const Address block = must_allocate(model.arena, 4096_B, stream);
    REQUIRE(model.arena.deallocate(block, stream).ok());
  }
  CHECK(model.broken() == "");
}

TEST_CASE("magazines stay under their cap, however many sizes go through them") {
  ModelArena model(64);
  std::vector<Address> blocks;
  for (int round = 0; round < 40; ++round) {
    for (std::uint64_t units = 1; units <= 64; ++units)
      blocks.push_back(must_allocate(model.arena, Bytes{units * 512}));
  }
  for (const Address block : blocks)
    REQUIRE(model.arena.deallocate(block, 0).ok());
  CHECK(model.arena.stats()->magazine_bytes <= 8_MiB);
  CHECK(model.broken() == "");
}

TEST_CASE(
    "magazines are emptied and checked while their threads use them, and every block stays one thread's") {
  const bool membarrier = GENERATE(true, false);
  ModelArena model(32, 2_MiB, 1, membarrier);
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::vector<std::atomic<std::uint8_t>> taken(64 << 20 >> 9);
  std::vector<std::thread> threads;
  for (unsigned thread = 0; thread < 3; ++thread) {
    threads.emplace_back([&, thread] {
      std::array<Address, 40> blocks{};
      for (unsigned step = thread; !stop; ++step) {
        Address& block = blocks[step % blocks.size()];
        const Stream stream = 100 + step / 1000 % 3;
        if (block != 0) {
          taken[(block - ModelArena::kSmallBase) / 512].store(0);
          if (!model.arena.deallocate(block, stream).ok()) ++wrong;
        }
        const Result<Address> fresh = model.arena.allocate(Bytes{1 + step * 7919 % 32768}, stream);
        block = fresh.ok() ? *fresh : 0;
        if (block != 0 && taken[(block - ModelArena::kSmallBase) / 512].exchange(1) != 0) ++wrong;
      }
      for (const Address block : blocks) {
        if (block == 0) continue;
        taken[(block - ModelArena::kSmallBase) / 512].store(0);
        if (!model.arena.deallocate(block, 0).ok()) ++wrong;
      }
    });
  }
  for (int round = 0; round < 60; ++round) {
    if (round % 3 == 0) CHECK(model.broken() == "");
    if (round % 3 == 1) CHECK(model.arena.trim_to(0_B).ok());
    if (round % 3 == 2) CHECK(model.arena.stream_gone(100 + round % 9 / 3).ok());
  }
  stop = true;
  for (std::thread& thread : threads)
    thread.join();
  CHECK(wrong == 0);
  CHECK(model.arena.stats()->live_blocks == 0);
  REQUIRE(model.arena.trim_to(0_B).ok());
  CHECK(model.source.chunks.empty());
  CHECK(model.broken() == "");
}
