// Threads doing random things to one arena, on several streams and under captures, against a map of what is
// live. Under ThreadSanitizer too.
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <thread>

#include "libclient/arena.hpp"
#include "tests/support/catch.hpp"
#include "tests/unit/libclient/model_source.hpp"

using namespace apportion;
using apportion::testing::ModelArena;
using apportion::testing::ModelSource;

namespace {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int kCheckedSteps = 600;  // each with a full check()
#else
constexpr int kCheckedSteps = 2500;
#endif

// A stream, and how many have had its handle before.
struct StreamId {
  Stream handle = 0;
  unsigned generation = 0;
  bool operator==(const StreamId&) const = default;
};

// What the threads agree is live, what is kept for whose graphs, and who freed what when. Catch2's assertions
// are for one thread, so faults are collected.
class Reference {
 public:
  explicit Reference(ModelSource& source) : source_(source) {}

  // After it was allocated on `stream`; nothing where that was not for a stream.
  void add(Address address, Bytes size, std::uint64_t pool, std::optional<StreamId> stream) {
    const std::lock_guard lock(mutex_);
    const Address end = address + size.value;
    cut(freed_, address, end, [&](const Block& old) {
      if (stream && old.stream != *stream && source_.passes(old.stream.handle) == old.passes)
        fault_ = "a block was reused on another stream before the GPU had passed its free";
    });
    if (overlaps(live_, address, end)) fault_ = "two live blocks overlap";
    live_.emplace(address, Block{size, pool});
    total_ += size;
    cut(kept_, address, end, [&](const Block& old) {
      if (old.pool != pool) fault_ = "a block that a graph uses was handed out";
    });
  }
  // Before it is freed on `stream`, that `capturing` is bound to, 0 for none.
  void remove(Address address, std::uint64_t capturing, StreamId stream) {
    const std::lock_guard lock(mutex_);
    const Block block = live_.at(address);
    total_ -= block.size;
    live_.erase(address);
    const std::uint64_t pool = block.pool != 0 && released_.count(block.pool) == 0 ? block.pool : capturing;
    if (pool != 0) {
      kept_.emplace(address, Block{block.size, pool});
    } else {
      freed_.emplace(address, Block{block.size, 0, stream, source_.passes(stream.handle)});
    }
  }
  // Before a pool is released.
  void release(std::uint64_t pool) {
    const std::lock_guard lock(mutex_);
    released_.insert(pool);
    for (auto kept = kept_.begin(); kept != kept_.end();)
      kept = kept->second.pool == pool ? kept_.erase(kept) : std::next(kept);
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
  struct Block {
    Bytes size;
    std::uint64_t pool = 0;
    StreamId stream{};         // of its free
    std::uint64_t passes = 0;  // of that stream by then
  };
  using Map = std::map<Address, Block>;
  // The first that ends after `address`.
  static Map::iterator first_at(Map& map, Address address) {
    auto at = map.upper_bound(address);
    if (at != map.begin()) {
      const auto before = std::prev(at);
      if (before->first + before->second.size.value > address) at = before;
    }
    return at;
  }
  // Takes [address, end) out of the map, and looks at each part of it.
  template <typename Look>
  static void cut(Map& map, Address address, Address end, Look&& look) {
    for (auto at = first_at(map, address); at != map.end() && at->first < end;) {
      const Address start = at->first;
      Block part = at->second;
      const Address stop = start + part.size.value;
      look(part);
      at = map.erase(at);
      part.size = Bytes{address - start};
      if (start < address) map.emplace(start, part);
      part.size = Bytes{stop - end};
      if (stop > end) at = map.emplace(end, part).first;
    }
  }
  static bool overlaps(Map& map, Address address, Address end) {
    const auto at = first_at(map, address);
    return at != map.end() && at->first < end;
  }

  ModelSource& source_;
  std::mutex mutex_;
  Map live_;
  Map kept_;
  Map freed_;
  std::set<std::uint64_t> released_;
  Bytes total_;
  std::string fault_;
};

// One thread's random walk. Its captures are of a stream of its own.
class Player {
 public:
  Player(ModelArena& model, Reference& reference, unsigned seed, Stream own)
      : arena_(model.arena),
        source_(model.source),
        reference_(reference),
        random_(seed),
        own_(own),
        generation_(seed * 1000) {}

  void play(int steps) {
    for (int step = 0; step < steps; ++step) {
      const auto dice = random_() % 100;
      if (dice < 50) {
        allocate(dice == 0);
      } else if (dice < 95) {
        if (!mine_.empty()) free(random_() % mine_.size(), stream());
      } else if (dice == 95) {
        capture();
      } else if (dice == 96) {
        const Status reserved = arena_.reserve(Bytes{random_() % (16 << 20)});
        if (!reserved.ok() && reserved.error().code != Errc::quota)
          reference_.fault(reserved.error().message);
      } else if (dice == 97) {
        const Result<Bytes> trimmed = arena_.trim_to(Bytes{random_() % (64 << 20)});
        if (!trimmed.ok() && trimmed.error().code != Errc::busy) reference_.fault("trim failed");
      } else if (dice == 98) {
        if (arena_.deallocate(0x1000, 0).ok()) reference_.fault("a foreign pointer was freed");
        if (!arena_.stream_gone(1000 + random_() % 3).ok()) reference_.fault("stream_gone failed");
        if (capturing_ == 0) destroy_or_create();
      } else {
        if (!arena_.stats().ok()) reference_.fault("stats failed");
      }
    }
    while (capturing_ != 0 || pool_ != 0)
      capture();
    if (own_there_) destroy_or_create();
    while (!mine_.empty())
      free(mine_.size() - 1, 0);
    source_.now(own_, ModelSource::Is::usable);  // the next player's
  }

 private:
  struct Block {
    Address address;
    Bytes size;
  };

  [[nodiscard]] Stream stream() {
    return own_there_ && random_() % (capturing_ != 0 ? 2 : 6) == 0 ? own_ : 1000 + random_() % 3;
  }
  [[nodiscard]] StreamId id_of(Stream stream) const { return {stream, stream == own_ ? generation_ : 0}; }
  [[nodiscard]] std::uint64_t pool_of(Stream stream) const { return stream == own_ ? capturing_ : 0; }

  void allocate(bool exact) {
    // Most go through magazines.
    const std::uint64_t kind = random_() % 10;
    const std::uint64_t size = 1 + random_() % (kind < 2 ? 9 << 20 : kind < 4 ? 200 << 10 : 32 << 10);
    const Stream on = exact ? 0 : stream();
    const Result<Address> block = exact ? arena_.allocate_exact({size}) : arena_.allocate({size}, on);
    if (!block.ok()) {
      const bool no_run = block.error().message.rfind("no run of addresses", 0) == 0;
      if (block.error().code != Errc::quota && !no_run) reference_.fault(block.error().message);
      return;
    }
    const Result<Bytes> real = arena_.size_of(*block);
    if (!real.ok() || real.value().value < size) {
      reference_.fault("a block is smaller than it was asked for");
      return;
    }
    reference_.add(*block, *real, pool_of(on), exact ? std::nullopt : std::optional(id_of(on)));
    if (exact) exact_.insert(*block);
    mine_.push_back({*block, *real});
  }

  void free(std::size_t index, Stream on) {
    const Block block = mine_[index];
    mine_[index] = mine_.back();
    mine_.pop_back();
    const bool exact = exact_.count(block.address) != 0;
    reference_.remove(block.address, exact ? 0 : pool_of(on), id_of(on));
    const Status freed = arena_.deallocate(block.address, on);
    if (freed.ok()) {
      exact_.erase(block.address);
    } else if (exact && freed.error().code == Errc::busy) {  // some thread captures; it is live still
      reference_.add(block.address, block.size, 0, std::nullopt);
      mine_.push_back(block);
      std::this_thread::yield();
    } else {
      reference_.fault("a live block could not be freed");
    }
  }

  // The next step of: begin, end, and perhaps again, release.
  void capture() {
    if (capturing_ != 0) {
      source_.now(own_, ModelSource::Is::usable);
      if (!arena_.graph_pool_end(own_).ok()) reference_.fault("a capture could not end");
      capturing_ = 0;
    } else if (pool_ != 0 && random_() % 3 != 0) {
      reference_.release(pool_);
      if (!arena_.graph_pool_release(pool_).ok()) reference_.fault("a pool could not be released");
      pool_ = 0;
    } else {
      if (!own_there_) destroy_or_create();
      const Result<std::uint64_t> begun = arena_.graph_pool_begin(own_, pool_);
      if (begun.ok()) {
        pool_ = capturing_ = *begun;
        source_.now(own_, ModelSource::Is::captured);
      } else if (begun.error().code != Errc::busy) {
        reference_.fault(begun.error().message);
      }
    }
  }

  void destroy_or_create() {
    own_there_ = !own_there_;
    generation_ += own_there_ ? 1 : 0;
    if (!own_there_ && !arena_.stream_gone(own_).ok()) reference_.fault("stream_gone failed");
    source_.now(own_, own_there_ ? ModelSource::Is::usable : ModelSource::Is::gone);
  }

  Arena& arena_;
  ModelSource& source_;
  Reference& reference_;
  std::mt19937_64 random_;
  const Stream own_;
  bool own_there_ = true;
  unsigned generation_;  // of the own stream: none of an earlier player's
  std::uint64_t pool_ = 0;
  std::uint64_t capturing_ = 0;
  std::vector<Block> mine_;
  std::set<Address> exact_;
};

void play(ModelArena& model, Reference& reference, unsigned seed, int steps) {
  Player(model, reference, seed, 5000 + seed % 10).play(steps);
}

}  // namespace

TEST_CASE("random operations of four threads agree with a reference map, and every invariant holds") {
  const auto seed = static_cast<unsigned>(GENERATE(11, 12, 13));
  INFO("seed " << seed);
  ModelArena model(48, 2_MiB, 2);
  Reference reference(model.source);
  for (int round = 0; round < 4; ++round) {
    std::vector<std::thread> threads;
    for (unsigned thread = 0; thread < 4; ++thread) {
      threads.emplace_back(play, std::ref(model), std::ref(reference), seed * 1000 + round * 10 + thread,
                           1500);
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
