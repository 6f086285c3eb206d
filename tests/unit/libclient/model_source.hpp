// A ChunkSource without a driver: it knows which addresses are mapped, refuses what a driver would refuse,
// and fails where a test wants it to.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "libclient/arena.hpp"

namespace apportion::testing {

class ModelSource final : public ChunkSource {
 public:
  explicit ModelSource(Bytes chunk, std::uint32_t limit_chunks)
      : chunk_(chunk), limit_chunks_(limit_chunks) {}

  Result<std::uint32_t> map(Address address, std::uint32_t min, std::uint32_t want) override {
    const Inside inside(*this, "map");
    if (fail_map) return failed(*fail_map);
    const std::uint32_t room = limit_chunks_ - static_cast<std::uint32_t>(chunks.size() + exact_chunks());
    if (min > room) return failed({Errc::quota, "the model is full"});
    const std::uint32_t count = lose_rest ? min : std::min(want, room);
    lost_ = lose_rest;
    for (std::uint32_t index = 0; index < count; ++index)
      add(address + index * chunk_.value);
    return count;
  }

  Status move(std::span<const Address> from, Address to) override {
    const Inside inside(*this, "move");
    if (!moving_) need_synchronised();  // one synchronise is for all moves that follow it at once
    moving_ = true;
    if (fail_move) return failed(*fail_move);
    for (const Address chunk : from)
      remove(chunk);
    for (std::size_t index = 0; index < from.size(); ++index)
      add(to + index * chunk_.value);
    return Done{};
  }

  Returned unmap(std::span<const Address> given) override {
    const Inside inside(*this, "unmap");
    need_synchronised();
    Returned returned;
    for (const Address chunk : given) {
      if (fail_unmap && returned.count == fail_unmap_at) {
        returned.error = failed(*fail_unmap);
        returned.lost = lost_ ? 1 : 0;
        return returned;
      }
      remove(chunk);
      ++returned.count;
    }
    return returned;
  }

  Status map_exact(Address address, Bytes bytes) override {
    const Inside inside(*this, "map_exact");
    if (fail_map) return failed(*fail_map);
    if (chunks.size() + exact_chunks() + (bytes.value + chunk_.value - 1) / chunk_.value > limit_chunks_) {
      return failed({Errc::quota, "the model is full"});
    }
    if (!exact.emplace(address, bytes).second) faults.push_back("an exact block mapped twice");
    return Done{};
  }

  Status unmap_exact(Address address, Bytes bytes) override {
    const Inside inside(*this, "unmap_exact");
    need_synchronised();
    if (fail_unmap) return failed(*fail_unmap);
    const auto found = exact.find(address);
    if (found == exact.end() || found->second != bytes) {
      faults.push_back("an exact block unmapped that is not mapped");
      return Done{};
    }
    exact.erase(found);
    return Done{};
  }

  Status synchronize(Stream) override {
    const Inside inside(*this, "synchronize");
    if (fail_synchronize) return failed(*fail_synchronize);
    ++synchronizes;
    synchronised_ = true;
    use_streams({}, true);
    return Done{};
  }

  Status wait_for(std::span<const Stream> streams) override {
    const Inside inside(*this, "wait_for");
    if (fail_wait) return failed(*fail_wait);
    use_streams(streams, false);
    events += streams.size();
    return Done{};
  }

  [[nodiscard]] bool one_context() const override { return !other_context; }
  [[nodiscard]] bool lost() const override { return lost_; }

  // What a test arms. Errc::driver leaves the addresses of the call lost.
  std::optional<Error> fail_map, fail_move, fail_unmap, fail_synchronize, fail_wait;
  std::size_t fail_unmap_at = 0;
  bool other_context = false;
  bool by_events = false;  // Quiesce::events: the test looks at the waits itself
  bool lose_all = false;   // a failure loses its addresses, whatever its code
  bool lose_rest = false;  // map answers the minimum, and what it tried beyond is in an unknown state
  std::function<void(const std::string&)> on_call;

  // What it saw.
  std::set<Address> chunks;
  std::map<Address, Bytes> exact;
  std::vector<std::string> calls;
  std::vector<std::string> faults;  // rules of ChunkSource that the arena broke
  std::atomic<std::uint64_t> synchronizes{0};
  std::map<Stream, std::uint64_t> waits;
  std::uint64_t events = 0;

  // What the program did with its streams, for the test to say: after the arena's OK, and before it is told
  // that a capture has ended.
  enum class Is : std::uint8_t { usable, gone, captured };
  void now(Stream stream, Is state) {
    const std::lock_guard lock(streams_mutex_);
    if (state == Is::usable) {
      states_.erase(stream);
    } else {
      states_[stream] = state;
    }
  }

  // How often the driver was asked to wait for the stream, or for everything. By any thread.
  [[nodiscard]] std::uint64_t passes(Stream stream) {
    const std::lock_guard lock(streams_mutex_);
    const auto found = waits.find(stream);
    return synchronizes + (found != waits.end() ? found->second : 0);
  }

 private:
  // As long as a driver call takes: what happens to the streams meanwhile counts too.
  void use_streams(std::span<const Stream> streams, bool context) {
    for (int look = 0; look < 20; ++look) {
      const std::lock_guard lock(streams_mutex_);
      for (const auto& [stream, state] : states_) {
        const bool used = std::count(streams.begin(), streams.end(), stream) != 0;
        if (used && state == Is::gone) faults.push_back("an event on a stream that is gone");
        if ((used || context) && state == Is::captured) faults.push_back("a capture was spoiled");
      }
      if (look == 0) {
        for (const Stream stream : streams)
          ++waits[stream];
      }
      std::this_thread::yield();
    }
  }
  class Inside {
   public:
    Inside(ModelSource& source, const char* call) : source_(source) {
      if (source_.inside_.exchange(true)) source_.faults.push_back("two calls at a time");
      source_.calls.emplace_back(call);
      if (source_.calls.back() != "move") source_.moving_ = false;
      source_.lost_ = false;
      if (const auto hook = source_.on_call) hook(call);  // a copy: it may disarm itself
    }
    ~Inside() { source_.inside_ = false; }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;

   private:
    ModelSource& source_;
  };

  Error failed(const Error& error) {
    lost_ = error.code == Errc::driver || lose_all;
    return error;
  }
  void add(Address chunk) {
    if (chunk % chunk_.value != 0) faults.push_back("a chunk mapped across slots");
    if (!chunks.insert(chunk).second) faults.push_back("a chunk mapped over another");
  }
  void remove(Address chunk) {
    if (chunks.erase(chunk) != 1) faults.push_back("an address unmapped that is not mapped");
  }
  void need_synchronised() {
    if (!synchronised_ && !by_events) faults.push_back("unmapped without a synchronise right before");
    synchronised_ = false;
  }
  [[nodiscard]] std::size_t exact_chunks() const {
    std::size_t count = 0;
    for (const auto& [address, bytes] : exact)
      count += (bytes.value + chunk_.value - 1) / chunk_.value;
    return count;
  }

  const Bytes chunk_;
  const std::uint32_t limit_chunks_;
  std::mutex streams_mutex_;
  std::map<Stream, Is> states_;  // of those that are not usable
  std::atomic<bool> inside_{false};
  bool synchronised_ = false;
  bool moving_ = false;  // the last call was a move
  bool lost_ = false;
};

// An arena over a model of a small device, with checks of both at the end.
struct ModelArena {
  explicit ModelArena(std::uint32_t limit_chunks = 64, Bytes chunk = Bytes{2 << 20}, std::uint32_t growth = 1,
                      bool membarrier = true)
      : source(chunk, limit_chunks), arena(ranges(limit_chunks, chunk, growth, membarrier), source) {}

  [[nodiscard]] static ArenaRanges ranges(std::uint32_t chunks, Bytes chunk, std::uint32_t growth,
                                          bool membarrier) {
    ArenaRanges ranges = ArenaRanges::for_device(chunk * chunks, chunk, 2_MiB);
    ranges.small = kSmallBase;
    ranges.large = kLargeBase;
    ranges.growth_chunks = growth;
    ranges.membarrier = membarrier;
    return ranges;
  }
  // The first thing wrong with the arena or with how it used its source; empty where nothing is.
  [[nodiscard]] std::string broken() {
    if (!source.faults.empty()) return source.faults.front();
    const Status status = arena.check();
    return status.ok() ? std::string{} : status.error().message;
  }

  static constexpr Address kSmallBase = 0x7000'0000'0000;
  static constexpr Address kLargeBase = 0x7100'0000'0000;

  ModelSource source;
  Arena arena;
};

// Ends the program where there is no block: a test that goes on proves nothing. Not of a test framework's:
// trace_pairs has none.
inline Address must_allocate(Arena& arena, Bytes bytes, Stream stream = 0) {
  if (const Address block = arena.try_allocate(bytes, stream); block != 0) return block;
  const Result<Address> block = arena.allocate(bytes, stream);
  if (!block) std::fprintf(stderr, "%s\n", block.error().message.c_str());
  APPORTION_CHECK(block.ok());
  return *block;
}

}  // namespace apportion::testing
