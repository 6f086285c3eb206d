// The arena over slabs: no block spans two, whole ones go back, nothing is moved, what is gone is nobody's.
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <thread>

#include "tests/support/catch.hpp"
#include "tests/unit/libclient/model_slabs.hpp"

using namespace apportion;
using apportion::testing::SlabArena;

namespace {

constexpr int kCheckedSteps = 1000;  // each with a full check()

Address must_allocate(SlabArena& slabs, Bytes bytes, Stream stream = 0, bool exact = false) {
  const Result<Address> block = slabs.allocate(bytes, stream, exact);
  if (!block) FAIL(block.error().message);
  return *block;
}

// The naive model: blocks as their users see them.
class Reference {
 public:
  explicit Reference(SlabArena& slabs) : slabs_(slabs) {}
  void add(Address block) {
    const Bytes size = slabs_.size_of(block);
    const std::lock_guard lock(mutex_);
    const auto next = live_.lower_bound(block);
    const bool over_next = next != live_.end() && next->first < block + size.value;
    const bool over_last =
        next != live_.begin() && std::prev(next)->first + std::prev(next)->second.value > block;
    if (over_next || over_last) fault_ = "two live blocks overlap";
    const auto slab = slabs_.source.slab_with(block, size);
    if (!slab) fault_ = "a block spans slabs";
    if (slab && lost_.count(slab->real) != 0) fault_ = "a block of a slab that is gone was handed out";
    live_.emplace(block, size);
  }
  void remove(Address block) {
    const std::lock_guard lock(mutex_);
    live_.erase(block);
  }
  // No address is used twice.
  void lose(Address slab) { lost_.insert(slab); }
  void fault(std::string what) {
    const std::lock_guard lock(mutex_);
    fault_ = std::move(what);
  }
  [[nodiscard]] std::string fault() {
    const std::lock_guard lock(mutex_);
    return fault_;
  }
  [[nodiscard]] Bytes total() {
    Bytes total;
    for (const auto& [block, size] : live_)
      total += size;
    return total;
  }

 private:
  SlabArena& slabs_;
  std::mutex mutex_;
  std::map<Address, Bytes> live_;
  std::set<Address> lost_;
  std::string fault_;
};

Bytes some_size(std::mt19937_64& random) {
  const std::uint64_t kind = random() % 10;
  return Bytes{1 + random() % (kind < 2 ? 20 << 20 : kind < 5 ? 3 << 20 : kind < 7 ? 300 << 10 : 32 << 10)};
}

void play(SlabArena& slabs, Reference& reference, unsigned seed, int steps) {
  std::mt19937_64 random(seed);
  std::vector<Address> mine;
  const auto stream = [&] { return Stream{1000 + random() % 3}; };
  const auto free = [&](std::size_t index) {
    const Address block = mine[index];
    mine[index] = mine.back();
    mine.pop_back();
    reference.remove(block);
    if (!slabs.free(block, stream()).ok()) reference.fault("a live block could not be freed");
  };
  for (int step = 0; step < steps; ++step) {
    const auto dice = random() % 100;
    if (dice < 52) {
      const Result<Address> block = slabs.allocate(some_size(random), stream(), dice == 0);
      if (block.ok()) {
        reference.add(*block);
        mine.push_back(*block);
      } else if (block.error().code != Errc::quota) {
        reference.fault(block.error().message);
      }
    } else if (dice < 96) {
      if (!mine.empty()) free(random() % mine.size());
    } else if (dice < 98) {
      if (!slabs.arena.trim_to(Bytes{random() % (256 << 20)}).ok()) reference.fault("trim failed");
    } else {
      const Status reserved = slabs.arena.reserve(Bytes{random() % (64 << 20)});
      if (!reserved.ok() && reserved.error().code != Errc::quota) reference.fault(reserved.error().message);
    }
  }
  while (!mine.empty())
    free(mine.size() - 1);
}

}  // namespace

TEST_CASE("slabs: a block lies in one slab, though others lie side by side with it") {
  SlabArena slabs(64, 1);
  std::vector<Address> blocks;
  for (int i = 0; i < 8; ++i)
    blocks.push_back(must_allocate(slabs, 2_MiB));
  for (const Address block : blocks)
    REQUIRE(slabs.free(block).ok());
  CHECK(slabs.source.slabs.size() == 8);
  const Address larger = must_allocate(slabs, 3_MiB);  // 16 MiB are free, and no slab of them fits
  CHECK(slabs.source.slab_with(larger, 3_MiB).has_value());
  CHECK(slabs.source.slabs.size() == 9);
  CHECK(slabs.broken() == "");
}

TEST_CASE("slabs: what was freed is used again without asking for more, small blocks beside large ones") {
  SlabArena slabs;
  const auto step = [&] {
    std::vector<Address> blocks;
    for (const Bytes size : {9_MiB, 3_MiB, 700_KiB, 4_KiB, 40_MiB, 512_B})
      blocks.push_back(must_allocate(slabs, size));
    for (const Address block : blocks)
      REQUIRE(slabs.free(block).ok());
  };
  step();
  const std::uint64_t maps = slabs.source.maps;
  for (int i = 0; i < 100; ++i)
    step();
  CHECK(slabs.source.maps == maps);
  CHECK(slabs.broken() == "");
}

TEST_CASE(
    "slabs: a block larger than growth is one slab of its size, a smaller one takes what growth asks for") {
  SlabArena slabs(256, 4);
  slabs.source.random_sizes = false;
  must_allocate(slabs, 1_KiB);
  must_allocate(slabs, 21_MiB);
  using Pair = std::pair<std::uint32_t, std::uint32_t>;
  CHECK(slabs.source.asked == std::vector<Pair>{{1, 4}, {11, 11}});
}

TEST_CASE("slabs: trim gives back whole slabs without a live block, and no part of another") {
  SlabArena slabs(256, 1);
  const Address pinned = must_allocate(slabs, 20_MiB);
  const Address idle = must_allocate(slabs, 10_MiB);
  REQUIRE(slabs.free(pinned).ok());
  REQUIRE(slabs.free(idle).ok());
  const Address pin = must_allocate(slabs, 18_MiB);
  CHECK(slabs.arena.stats()->idle_bytes == 10_MiB);
  CHECK(*slabs.arena.trim_to(0_B) == 10_MiB);
  CHECK(slabs.source.slabs.size() == 1);
  REQUIRE(slabs.free(pin).ok());
  CHECK(*slabs.arena.trim_to(Bytes{20_MiB} - 1_B) == 20_MiB);  // a slab is all or nothing
  CHECK(slabs.source.slabs.empty());
  CHECK(slabs.broken() == "");
}

TEST_CASE("slabs: idle ones go back when there is no more, and the request is made again") {
  SlabArena slabs(10, 1);
  std::vector<Address> blocks;
  for (int i = 0; i < 10; ++i)
    blocks.push_back(must_allocate(slabs, 2_MiB));
  for (const Address block : blocks)
    REQUIRE(slabs.free(block).ok());
  const Address block = must_allocate(slabs, 9_MiB);
  CHECK(slabs.source.slabs.size() == 6);  // one of five slots, and those that were not needed for it
  CHECK(slabs.source.slab_with(block, 9_MiB).has_value());
  CHECK(slabs.allocate(11_MiB).error().code == Errc::quota);
  CHECK(slabs.broken() == "");
}

TEST_CASE("slabs: what was reserved serves blocks of any size without asking for more") {
  SlabArena slabs(64, 8);
  REQUIRE(slabs.arena.reserve(64_MiB).ok());
  const std::uint64_t maps = slabs.source.maps;
  for (int i = 0; i < 200; ++i)
    must_allocate(slabs, 4_KiB);
  must_allocate(slabs, 50_MiB);
  must_allocate(slabs, 900_KiB);
  CHECK(slabs.source.maps == maps);
  CHECK(slabs.broken() == "");
}

TEST_CASE("F56: slabs: for somebody else whole ones go, and none that would cut into what was reserved") {
  SlabArena slabs(64, 1);
  slabs.source.by_events = true;
  REQUIRE(slabs.arena.reserve(16_MiB).ok());
  REQUIRE(slabs.free(must_allocate(slabs, 20_MiB)).ok());
  CHECK(slabs.arena.give(2_MiB, false, Arena::Quiesce::events).bytes == 16_MiB);
  CHECK(slabs.arena.give(2_MiB, false, Arena::Quiesce::events).bytes == 0_B);
  CHECK(slabs.arena.give(2_MiB, true, Arena::Quiesce::events).bytes == 20_MiB);
  CHECK(slabs.broken() == "");
}

TEST_CASE("slabs: one that was idle long enough goes, whole; one with a live block in it does not") {
  SlabArena slabs(64, 1);
  slabs.source.by_events = true;
  REQUIRE(slabs.free(must_allocate(slabs, 8_MiB)).ok());
  const Address pin = must_allocate(slabs, 1_MiB);
  REQUIRE(slabs.free(must_allocate(slabs, 12_MiB)).ok());
  for (int times = 0; times < Arena::kRipe; ++times) {
    CHECK(slabs.source.slabs.size() == 2);
    static_cast<void>(slabs.arena.sweep());
  }
  CHECK(slabs.source.slabs.size() == 1);
  CHECK(slabs.source.slab_with(pin, 1_MiB).has_value());
  CHECK(slabs.broken() == "");
}

TEST_CASE("K4: slabs: without a synchronise only those go whose frees the GPU has passed") {
  SlabArena slabs(64, 1);
  slabs.source.by_events = true;
  const Address passed = must_allocate(slabs, 8_MiB);
  const Address first = must_allocate(slabs, 4_MiB);
  const Address second = must_allocate(slabs, 2_MiB, 5);
  REQUIRE(slabs.free(passed, 4).ok());
  REQUIRE(slabs.free(first, 4).ok());
  REQUIRE(slabs.free(second, 5).ok());
  REQUIRE(slabs.arena.stream_gone(5).ok());  // nobody can ask it any more
  CHECK(slabs.arena.give(64_MiB, false, Arena::Quiesce::events).bytes == 12_MiB);
  slabs.source.by_events = false;
  CHECK(slabs.arena.give(64_MiB, false, Arena::Quiesce::synchronize).bytes == 2_MiB);
  CHECK(slabs.broken() == "");
}

TEST_CASE("slabs: an exact block is a slab of its own, given back when it is freed") {
  SlabArena slabs;
  must_allocate(slabs, 1_KiB);
  const Address exact = must_allocate(slabs, 3_MiB, 0, true);
  CHECK(slabs.source.slab_with(exact, 4_MiB)->bytes == 4_MiB);
  const Address next = must_allocate(slabs, 1_MiB);
  CHECK((next < exact || next >= exact + (4_MiB).value));
  REQUIRE(slabs.free(exact).ok());
  CHECK(slabs.source.slabs.size() == 1);
  CHECK(slabs.broken() == "");
}

TEST_CASE("slabs: one whose return failed is used again, or never where its state is unknown") {
  SlabArena slabs(8, 4);
  slabs.source.random_sizes = false;
  REQUIRE(slabs.free(must_allocate(slabs, 8_MiB)).ok());
  slabs.source.fail_unmap = Error{Errc::system, "armed"};
  CHECK(slabs.arena.trim_to(0_B).error().code == Errc::system);
  CHECK(slabs.arena.stats()->cached_bytes == 8_MiB);
  REQUIRE(slabs.free(must_allocate(slabs, 8_MiB)).ok());
  CHECK(slabs.source.maps == 1);
  slabs.source.fail_unmap = Error{Errc::driver, "armed"};
  CHECK(slabs.arena.trim_to(0_B).error().code == Errc::driver);
  CHECK(slabs.arena.stats()->cached_bytes == 0_B);
  must_allocate(slabs, 8_MiB);
  CHECK(slabs.source.maps == 2);
  CHECK(slabs.broken() == "");
}

TEST_CASE(
    "F52: of a slab that is gone nothing is handed out, its blocks can be freed, and then it goes whole") {
  SlabArena slabs(64, 4);
  slabs.source.random_sizes = false;
  const Address small = must_allocate(slabs, 4_KiB);
  const Address large = must_allocate(slabs, 5_MiB);
  const Address whole = must_allocate(slabs, 8_MiB);
  const Address idle = must_allocate(slabs, 8_MiB);
  REQUIRE(slabs.free(idle).ok());
  REQUIRE(slabs.source.slabs.size() == 3);
  for (const auto& [name, slab] : slabs.source.slabs) {
    if (slab.real != slabs.source.slab_with(whole, 8_MiB)->real) slabs.source.gone.push_back(name);
  }
  CHECK(*slabs.arena.settle_lost() == 5_MiB + 4_KiB + slabs.arena.stats()->magazine_bytes);
  CHECK(slabs.source.slabs.size() == 2);  // the idle one has gone
  CHECK(slabs.arena.stats()->cached_bytes == 0_B);
  const Address other = must_allocate(slabs, 1_MiB);
  CHECK(slabs.source.slab_with(other, 1_MiB)->real != slabs.source.slab_with(small, 4_KiB)->real);
  REQUIRE(slabs.free(small, 7).ok());
  CHECK(slabs.free(small, 7).error().code == Errc::invalid);
  CHECK(*slabs.arena.settle_lost() == 5_MiB);
  REQUIRE(slabs.free(large, 8).ok());
  CHECK(*slabs.arena.settle_lost() == 0_B);
  CHECK(slabs.source.slabs.size() == 2);
  CHECK(*slabs.arena.settle_lost() == 0_B);
  CHECK(slabs.free(whole).ok());
  CHECK(slabs.broken() == "");
}

TEST_CASE("F52: a lost slab that cannot be let go of now stays lost, and goes later") {
  SlabArena slabs(64, 4);
  slabs.source.random_sizes = false;
  REQUIRE(slabs.free(must_allocate(slabs, 8_MiB)).ok());
  slabs.source.gone = {slabs.source.slabs.begin()->first};
  slabs.source.fail_synchronize = Error{Errc::busy, "armed"};
  CHECK(slabs.arena.settle_lost().error().code == Errc::busy);
  CHECK(slabs.broken() == "");
  CHECK(slabs.arena.try_allocate(1_KiB, 0) == 0);
  slabs.source.fail_synchronize.reset();
  slabs.source.fail_unmap = Error{Errc::system, "armed"};
  CHECK(slabs.arena.settle_lost().error().code == Errc::system);
  CHECK(slabs.broken() == "");
  CHECK(slabs.arena.try_allocate(1_KiB, 0) == 0);
  slabs.source.fail_unmap.reset();
  CHECK(*slabs.arena.settle_lost() == 0_B);
  CHECK(slabs.source.slabs.empty());
  CHECK(slabs.broken() == "");
}

TEST_CASE("F52: an exact block whose memory is gone counts until it is freed") {
  SlabArena slabs;
  const Address block = must_allocate(slabs, 4_MiB, 0, true);
  slabs.source.gone = {slabs.source.slabs.begin()->first};
  CHECK(*slabs.arena.settle_lost() == 4_MiB);
  CHECK(*slabs.arena.settle_lost() == 4_MiB);
  REQUIRE(slabs.free(block).ok());
  CHECK(*slabs.arena.settle_lost() == 0_B);
  CHECK(slabs.source.slabs.empty());
}

TEST_CASE("slabs: random operations of four threads agree with a naive model, and all of it goes back") {
  const auto seed = static_cast<unsigned>(GENERATE(31, 32, 33));
  INFO("seed " << seed);
  SlabArena slabs(128, 4, seed);
  Reference reference(slabs);
  for (unsigned round = 0; round < 3; ++round) {
    std::vector<std::thread> threads;
    for (unsigned thread = 0; thread < 4; ++thread) {
      threads.emplace_back(play, std::ref(slabs), std::ref(reference), seed * 100 + round * 10 + thread,
                           1500);
    }
    for (std::thread& thread : threads)
      thread.join();
    REQUIRE(reference.fault() == "");
    REQUIRE(slabs.broken() == "");
    CHECK(slabs.arena.stats()->bytes_in_use == 0_B);
  }
  REQUIRE(slabs.arena.trim_to(0_B).ok());
  CHECK(slabs.source.slabs.empty());
  CHECK(slabs.broken() == "");
}

TEST_CASE("slabs: random operations keep every invariant after each step, with failures and with losses") {
  const auto seed = static_cast<unsigned>(GENERATE(41, 42, 43, 44));
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  SlabArena slabs(64, 3, seed);
  Reference reference(slabs);
  std::vector<Address> live;
  bool losing = false;
  const auto perhaps = [&](std::optional<Error>& armed, unsigned percent) {
    armed.reset();
    if (random() % 100 < percent) armed = Error{random() % 4 == 0 ? Errc::driver : Errc::quota, "armed"};
  };
  for (int step = 0; step < kCheckedSteps; ++step) {
    perhaps(slabs.source.fail_map, 4);
    perhaps(slabs.source.fail_unmap, 1);
    perhaps(slabs.source.fail_synchronize, 4);
    const auto dice = random() % 100;
    if (dice < 50) {
      // As the client: nobody allocates while something that is gone is live.
      if (losing) {
        const Result<Bytes> left = slabs.arena.settle_lost();
        losing = !left.ok() || left->value != 0;
      }
      const Result<Address> block =
          losing ? Error{Errc::disconnected, "lost"} : slabs.allocate(some_size(random), 1000 + random() % 3);
      if (block.ok()) {
        reference.add(*block);
        live.push_back(*block);
      }
    } else if (dice < 95 && !live.empty()) {
      const std::size_t index = random() % live.size();
      reference.remove(live[index]);
      REQUIRE(slabs.free(live[index], 1000 + random() % 3).ok());
      live[index] = live.back();
      live.pop_back();
    } else if (dice == 95 && random() % 4 == 0 && !slabs.source.slabs.empty()) {
      auto slab = slabs.source.slabs.begin();
      std::advance(slab, random() % slabs.source.slabs.size());
      const Address name = slab->first;
      reference.lose(slab->second.real);
      slabs.source.gone.push_back(name);
      losing = true;
    } else if (dice == 96) {
      (void)slabs.arena.settle_lost().ok();
    } else if (dice == 97) {
      (void)slabs.arena.reserve(Bytes{random() % (32 << 20)}).ok();
    } else {
      (void)slabs.arena.trim_to(Bytes{random() % (64 << 20)}).ok();
    }
    REQUIRE(reference.fault() == "");
    const std::string broken = slabs.broken();
    if (!broken.empty()) FAIL("step " << step << ": " << broken);
  }
}
