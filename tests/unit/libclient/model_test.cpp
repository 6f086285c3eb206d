// Threads doing random things to one arena, against a map of what is live. Under ThreadSanitizer too.
#include <mutex>
#include <random>
#include <thread>

#include "libclient/arena.hpp"
#include "tests/support/catch.hpp"
#include "tests/unit/libclient/model_source.hpp"

using namespace apportion;
using apportion::testing::ModelArena;

namespace {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int kCheckedSteps = 600;  // each with a full check()
#else
constexpr int kCheckedSteps = 2500;
#endif

// What the threads agree is live. Catch2's assertions are for one thread, so faults are collected.
class Reference {
 public:
  void add(Address address, Bytes size) {
    const std::lock_guard lock(mutex_);
    const auto after = live_.upper_bound(address);
    if (after != live_.end() && address + size.value > after->first) fault_ = "two live blocks overlap";
    if (after != live_.begin()) {
      const auto before = std::prev(after);
      if (before->first + before->second.value > address) fault_ = "two live blocks overlap";
    }
    live_.emplace(address, size);
    total_ += size;
  }
  void remove(Address address) {
    const std::lock_guard lock(mutex_);
    total_ -= live_.at(address);
    live_.erase(address);
  }
  void fault(std::string what) {
    const std::lock_guard lock(mutex_);
    fault_ = std::move(what);
  }
  [[nodiscard]] std::string fault() {
    const std::lock_guard lock(mutex_);
    return fault_;
  }
  [[nodiscard]] Bytes total() {
    const std::lock_guard lock(mutex_);
    return total_;
  }

 private:
  std::mutex mutex_;
  std::map<Address, Bytes> live_;
  Bytes total_;
  std::string fault_;
};

void play(Arena& arena, Reference& reference, unsigned seed, int steps) {
  std::mt19937_64 random(seed);
  struct Block {
    Address address;
    Bytes size;
  };
  std::vector<Block> mine;
  for (int step = 0; step < steps; ++step) {
    const Stream stream = 1000 + random() % 3;
    const auto dice = random() % 100;
    if (dice < 50) {
      // Most go through magazines.
      const std::uint64_t kind = random() % 10;
      const std::uint64_t size = 1 + random() % (kind < 2 ? 9 << 20 : kind < 4 ? 200 << 10 : 32 << 10);
      const Result<Address> block = dice == 0 ? arena.allocate_exact({size}) : arena.allocate({size}, stream);
      if (!block.ok()) {
        const bool no_run = block.error().message.rfind("no run of addresses", 0) == 0;
        if (block.error().code != Errc::quota && !no_run) reference.fault(block.error().message);
        continue;
      }
      const Result<Bytes> real = arena.size_of(*block);
      if (!real.ok() || real.value().value < size) {
        reference.fault("a block is smaller than it was asked for");
        return;
      }
      reference.add(*block, *real);
      mine.push_back({*block, *real});
    } else if (dice < 97) {
      if (mine.empty()) continue;
      const std::size_t index = random() % mine.size();
      const Block block = mine[index];
      mine[index] = mine.back();
      mine.pop_back();
      reference.remove(block.address);
      if (!arena.deallocate(block.address, stream).ok()) reference.fault("a live block could not be freed");
    } else if (dice == 97) {
      if (!arena.trim_to(Bytes{random() % (64 << 20)}).ok()) reference.fault("trim failed");
    } else if (dice == 98) {
      const Status reserved = arena.reserve(Bytes{random() % (16 << 20)});
      if (!reserved.ok() && reserved.error().code != Errc::quota) reference.fault(reserved.error().message);
      if (arena.deallocate(0x1000, stream).ok()) reference.fault("a foreign pointer was freed");
      if (!arena.stream_gone(stream).ok()) reference.fault("stream_gone failed");
    } else {
      if (!arena.stats().ok()) reference.fault("stats failed");
    }
  }
  for (const Block& block : mine) {
    reference.remove(block.address);
    if (!arena.deallocate(block.address, 0).ok())
      reference.fault("a live block could not be freed at the end");
  }
}

}  // namespace

TEST_CASE("random operations of four threads agree with a reference map, and every invariant holds") {
  const auto seed = static_cast<unsigned>(GENERATE(11, 12, 13));
  INFO("seed " << seed);
  ModelArena model(48, 2_MiB, 2);
  Reference reference;
  for (int round = 0; round < 4; ++round) {
    std::vector<std::thread> threads;
    for (unsigned thread = 0; thread < 4; ++thread) {
      threads.emplace_back(play, std::ref(model.arena), std::ref(reference),
                           seed * 1000 + round * 10 + thread, 1500);
    }
    for (std::thread& thread : threads)
      thread.join();
    REQUIRE(reference.fault() == "");
    REQUIRE(model.broken() == "");
    CHECK(model.arena.stats()->bytes_in_use == reference.total());
  }
  REQUIRE(model.arena.trim_to(0_B).ok());
  CHECK(model.source.chunks.empty());
  CHECK(model.source.exact.empty());
  CHECK(model.arena.stats()->pool_bytes == 0_B);
  CHECK(model.broken() == "");
}

TEST_CASE(
    "random operations of one thread keep every invariant after each step, with failures of the source") {
  const auto seed = static_cast<unsigned>(GENERATE(21, 22, 23));
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  ModelArena model(24, 2_MiB, 3);
  std::vector<Address> live;
  const auto perhaps = [&](std::optional<Error>& armed, unsigned percent) {
    armed.reset();
    if (random() % 100 < percent) armed = Error{random() % 2 == 0 ? Errc::driver : Errc::quota, "armed"};
  };
  for (int step = 0; step < kCheckedSteps; ++step) {
    perhaps(model.source.fail_map, 4);
    perhaps(model.source.fail_move, 4);
    perhaps(model.source.fail_unmap, 2);
    perhaps(model.source.fail_synchronize, 4);
    model.source.fail_unmap_at = random() % 3;
    const Stream stream = 1000 + random() % 3;
    const auto dice = random() % 100;
    if (dice < 50) {
      const std::uint64_t kind = random() % 3;
      const Bytes size{1 + random() % (kind == 0 ? 9 << 20 : kind == 1 ? 300 << 10 : 32 << 10)};
      const Result<Address> block =
          dice == 0 ? model.arena.allocate_exact(size) : model.arena.allocate(size, stream);
      if (block.ok()) live.push_back(*block);
    } else if (dice < 95 && !live.empty()) {
      const std::size_t index = random() % live.size();
      const bool ordinary = model.arena.deallocate(live[index], stream).ok();
      if (ordinary || !model.arena.size_of(live[index]).ok()) {
        live[index] = live.back();
        live.pop_back();
      }
    } else if (dice == 99) {
      (void)model.arena.reserve(Bytes{random() % (32 << 20)}).ok();
    } else {
      (void)model.arena.trim_to(Bytes{random() % (32 << 20)}).ok();
    }
    const std::string broken = model.broken();
    if (!broken.empty()) FAIL("step " << step << ": " << broken);
  }
}
