// A ChunkSource that maps one slab at a time, where "the driver" likes: it refuses what cannot be done with
// slabs, and keeps the addresses that a user would see.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "libclient/arena.hpp"
#include "libclient/slab_addresses.hpp"

namespace apportion::testing {

class ModelSlabs final : public ChunkSource {
 public:
  static constexpr Bytes kSlot{2 << 20};

  ModelSlabs(std::uint32_t limit_slots, unsigned seed) : limit_slots_(limit_slots), random_(seed) {}

  Result<std::uint32_t> map(Address address, std::uint32_t min, std::uint32_t want) override {
    const std::lock_guard lock(mutex_);
    lost_ = false;
    ++maps;
    asked.emplace_back(min, want);
    if (fail_map) return *fail_map;
    const std::uint32_t room = limit_slots_ - held_;
    if (min > room) return Error{Errc::quota, "the model is full"};
    const std::uint32_t most = std::min(want, room);
    const std::uint32_t count =
        random_sizes ? min + static_cast<std::uint32_t>(random_() % (most - min + 1)) : most;
    add(address, kSlot * count);
    return count;
  }
  Status move(std::span<const Address>, Address) override {
    const std::lock_guard lock(mutex_);
    fault("a slab was moved");
    return Error{Errc::driver, "slabs cannot be moved"};
  }
  Returned unmap(std::span<const Address> chunks) override {
    const std::lock_guard lock(mutex_);
    lost_ = false;
    if (!synchronised_ && !by_events) fault("given back without a synchronise right before");
    synchronised_ = false;
    Returned returned;
    while (returned.count < chunks.size()) {
      const auto slab = slabs.find(chunks[returned.count]);
      if (slab == slabs.end()) return fault("what was given back is not where a slab starts"), returned;
      const std::size_t slots = slab->second.bytes / kSlot;
      for (std::size_t slot = 0; slot < slots; ++slot) {
        if (returned.count + slot >= chunks.size() ||
            chunks[returned.count + slot] != slab->first + slot * kSlot.value)
          return fault("a part of a slab was given back"), returned;
      }
      if (fail_unmap) {
        lost_ = fail_unmap->code == Errc::driver;
        returned.error = *fail_unmap;
        returned.lost = lost_ ? slots : 0;
        return returned;
      }
      remove(slab);
      returned.count += slots;
    }
    return returned;
  }
  Status map_exact(Address address, Bytes bytes) override {
    const std::lock_guard lock(mutex_);
    if (fail_map) return *fail_map;
    if (bytes / kSlot > limit_slots_ - held_) return Error{Errc::quota, "the model is full"};
    add(address, bytes);
    return Done{};
  }
  Status unmap_exact(Address address, Bytes bytes) override {
    const std::lock_guard lock(mutex_);
    const auto slab = slabs.find(address);
    if (slab == slabs.end() || slab->second.bytes != bytes)
      return fault("an exact block given back that is not there"), Done{};
    remove(slab);
    return Done{};
  }
  Status synchronize(Stream) override {
    const std::lock_guard lock(mutex_);
    if (fail_synchronize) return *fail_synchronize;
    synchronised_ = true;
    return Done{};
  }
  Status wait_for(std::span<const Stream>) override { return Done{}; }
  std::vector<Address> take_gone() override {
    const std::lock_guard lock(mutex_);
    return std::exchange(gone, {});
  }
  [[nodiscard]] bool one_context() const override { return true; }
  [[nodiscard]] bool lost() const override { return lost_; }

  struct Slab {
    Address real;
    Bytes bytes;
  };
  // The slab that holds all of a block as its user sees it; nothing where none does.
  [[nodiscard]] std::optional<Slab> slab_with(Address real, Bytes bytes) {
    const std::lock_guard lock(mutex_);
    for (const auto& [name, slab] : slabs) {
      if (real >= slab.real && real + bytes.value <= slab.real + slab.bytes.value) return slab;
    }
    return std::nullopt;
  }

  // What a test arms.
  std::optional<Error> fail_map, fail_unmap, fail_synchronize;
  std::vector<Address> gone;  // names of slabs
  bool by_events = false;     // Quiesce::events: nothing is synchronised
  bool random_sizes = true;

  // What it saw.
  std::map<Address, Slab> slabs;  // by name
  SlabAddresses addresses;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> asked;
  std::string broken;  // the first rule that was
  std::uint64_t maps = 0;

 private:
  void fault(const char* what) {
    if (broken.empty()) broken = what;
  }
  void add(Address name, Bytes bytes) {
    // Apart from each other or side by side, never twice.
    next_real_ += random_() % 3 * kSlot.value;
    const Slab slab{next_real_, bytes};
    next_real_ += bytes.value;
    if (!slabs.emplace(name, slab).second) fault("a slab over another");
    if (!addresses.add(name, slab.real, bytes).ok()) fault("a slab over a part of another");
    held_ += static_cast<std::uint32_t>(bytes / kSlot);
  }
  void remove(std::map<Address, Slab>::iterator slab) {
    addresses.remove(slab->first, slab->second.real, slab->second.bytes);
    held_ -= static_cast<std::uint32_t>(slab->second.bytes / kSlot);
    slabs.erase(slab);
  }

  const std::uint32_t limit_slots_;
  std::mutex mutex_;
  std::mt19937_64 random_;
  std::uint32_t held_ = 0;
  Address next_real_ = 0x7e00'0000'0000;
  bool synchronised_ = false;
  bool lost_ = false;
};

// An arena over it, as a client uses the two: users see real addresses.
struct SlabArena {
  explicit SlabArena(std::uint32_t limit_slots = 256, std::uint32_t growth = 4, unsigned seed = 1)
      : source(limit_slots, seed), arena(ranges(limit_slots, growth), source) {}

  [[nodiscard]] static ArenaRanges ranges(std::uint32_t slots, std::uint32_t growth) {
    ArenaRanges ranges = ArenaRanges::for_slabs(ModelSlabs::kSlot * slots, ModelSlabs::kSlot);
    ranges.small = Address{1} << 40;
    ranges.large = Address{1} << 41;
    ranges.growth_chunks = growth;
    return ranges;
  }
  [[nodiscard]] Result<Address> allocate(Bytes bytes, Stream stream = 0, bool exact = false) {
    const Result<Address> name = exact ? arena.allocate_exact(bytes) : arena.allocate(bytes, stream);
    if (!name) return name.error();
    return source.addresses.real_of(*name);
  }
  Status free(Address real, Stream stream = 0) {
    return arena.deallocate(source.addresses.name_of(real), stream);
  }
  [[nodiscard]] Bytes size_of(Address real) { return *arena.size_of(source.addresses.name_of(real)); }
  [[nodiscard]] std::string broken() {
    if (!source.broken.empty()) return source.broken;
    const Status status = arena.check();
    return status.ok() ? std::string{} : status.error().message;
  }

  ModelSlabs source;
  Arena arena;
};

}  // namespace apportion::testing
