#include "libclient/arena.hpp"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "libclient/offset_inline.hpp"

namespace apportion {

Error Arena::arena_busy() {
  return {Errc::busy,
          "the arena is in use by the code that this signal handler interrupted; allocate elsewhere"};
}

Error Arena::not_live(Address block) {
  std::array<char, 96> text{};
  std::snprintf(text.data(), text.size(),
                "no live block starts at 0x%llx: freed twice, or not from this library",
                static_cast<unsigned long long>(block));
  return {Errc::invalid, text.data()};
}

Arena::Arena(const ArenaRanges& ranges, ChunkSource& source)
    : source_(source),
      slabs_(ranges.slabs),
      chunk_(ranges.chunk),
      granularity_(ranges.granularity),
      growth_chunks_(std::max(ranges.growth_chunks, 1U)),
      magazines_(ranges.membarrier),
      small_{
          ranges.small, ranges.small_bytes().value,
          OffsetAllocator(ranges.small_slots, static_cast<std::uint32_t>(chunk_.value / kUnit), 0, slabs_)},
      large_{ranges.large, ranges.large_bytes().value,
             OffsetAllocator(ranges.large_slots, static_cast<std::uint32_t>(chunk_.value / kUnit), 11)} {
  static_assert(ArenaRanges::kSmallBlock == kUnit << 11,
                "one table entry per small-block size in the large range");
  APPORTION_CHECK(small_.bytes <= ArenaRanges::kMaxRange && large_.bytes <= ArenaRanges::kMaxRange);
  APPORTION_CHECK(chunk_.value % kUnit == 0 && chunk_.value > ArenaRanges::kSmallBlock);
  APPORTION_CHECK(granularity_.value > 0 && chunk_.value % granularity_.value == 0);
  if (!slabs_) return;
  lost_ = tags_.make_pool();
  APPORTION_CHECK(small_.blocks.make_pool(lost_));
}

Address Arena::take(Range& range, std::uint32_t units, Stream stream) noexcept {
  const NodeId id = range.blocks.allocate(units, tags_.find(stream));
  if (id == kNoNode) return 0;
  note_allocated(units);
  return range.base + range.blocks.node(id).offset * kUnit;
}

Address Arena::take_joined(Range& range, std::uint32_t units, Stream stream) noexcept {
  const Address block = take(range, units, stream);
  if (block != 0 || !range.blocks.absorb(units, tags_.find(stream))) return block;
  return take(range, units, stream);
}

[[gnu::flatten]] Address Arena::try_allocate(Bytes bytes, Stream stream) noexcept {
  if (bytes.value - 1 >= large_.bytes) return 0;  // 0 wraps
  const auto units = static_cast<std::uint32_t>((bytes.value + kUnit - 1) / kUnit);
  if (units <= Magazine::kMost) {
    stream = StreamTags::canonical(stream);
    const Address block = pop(units, stream);
    return block != 0 ? block : refill(units, stream);
  }
  Range& range = range_for(bytes);
  const ShortGuard guard(lock_);
  if (!guard.held()) return 0;
  const Address block = take(range, units, stream);
  if (block != 0) ++counts_.arena_hits;
  return block;
}

Result<Address> Arena::allocate(Bytes bytes, Stream stream) {
  if (const Address block = try_allocate(bytes, stream); block != 0) return block;
  if (bytes.value == 0) return Error{Errc::invalid, "an allocation of 0 bytes; ask for at least 1"};
  if (bytes.value > large_.bytes) {
    return Error{Errc::out_of_memory, "an allocation of " + to_text(bytes) + " is larger than the device"};
  }
  if (holds_a_lock()) return arena_busy();
  const SlowGuard guard(slow_);
  if (!guard.held()) return arena_busy();
  return allocate_slow(range_for(bytes), static_cast<std::uint32_t>((bytes.value + kUnit - 1) / kUnit),
                       stream);
}

[[gnu::always_inline]] inline Arena::Freed Arena::free_block(Address block, Stream stream) noexcept {
  Range* const range = range_of(block);
  if (range == nullptr) return Freed::not_live;
  if (range == &small_ && push(static_cast<std::uint32_t>((block - small_.base) / kUnit), stream))
    return Freed::yes;
  const ShortGuard guard(lock_);
  if (!guard.held()) return Freed::busy;
  const NodeId id = range->blocks.find_live(static_cast<std::uint32_t>((block - range->base) / kUnit));
  if (id == kNoNode) return Freed::not_live;
  const BlockNode& node = range->blocks.node(id);
  if (node.state != BlockState::live) return Freed::exact;
  --counts_.live_blocks;
  range->blocks.release(id, tags_.acquire(stream), epoch_);
  if (!sweeping_) [[unlikely]]
    note_idle();
  return Freed::yes;
}

[[gnu::noinline, gnu::cold]] void Arena::note_idle() noexcept {
  if (small_.blocks.slots().idle() == 0 && large_.blocks.slots().idle() == 0 && !assigned_) return;
  sweeping_ = true;
  due_.store(true, std::memory_order_relaxed);
}

[[gnu::flatten]] bool Arena::try_deallocate(Address block, Stream stream) noexcept {
  return free_block(block, stream) == Freed::yes;
}

Status Arena::deallocate(Address block, Stream stream) {
  if (block == 0) return Done{};
  switch (free_block(block, stream)) {
    case Freed::yes:
      return Done{};
    case Freed::not_live:
      return not_live(block);
    case Freed::busy:
      return arena_busy();
    case Freed::exact:
      break;
  }
  if (holds_a_lock()) return arena_busy();
  const SlowGuard guard(slow_);
  if (!guard.held()) return arena_busy();
  return free_exact(block);
}

Status Arena::stream_gone(Stream stream) {
  if (holds_a_lock()) return arena_busy();
  const SlowGuard asks(asks_);
  if (!asks.held()) return arena_busy();
  if (Status emptied = empty_magazines(StreamTags::canonical(stream)); !emptied) return emptied;
  const ShortGuard guard(lock_);
  if (!guard.held()) return arena_busy();
  tags_.forget(stream);
  return Done{};
}

Status Arena::wait_for_all() {
  if (holds_a_lock()) return arena_busy();
  const SlowGuard guard(slow_);
  if (!guard.held()) return arena_busy();
  return synchronize(kNoStream);
}

Arena::Range* Arena::range_of(Address address) {
  if (address % kUnit != 0) return nullptr;
  if (address - large_.base < large_.bytes) return &large_;
  if (address - small_.base < small_.bytes) return &small_;
  return nullptr;
}

Result<Bytes> Arena::size_of(Address block) {
  Range* range = range_of(block);
  if (range == nullptr) return not_live(block);
  const ShortGuard guard(lock_);
  if (!guard.held()) return arena_busy();
  const NodeId id = range->blocks.find_live(static_cast<std::uint32_t>((block - range->base) / kUnit));
  if (id == kNoNode) return not_live(block);
  const BlockNode& node = range->blocks.node(id);
  return node.state == BlockState::exact ? exact_.at(block).size : Bytes{node.units * kUnit};
}

Bytes Arena::mapped() const {
  return chunk_ * (std::uint64_t{small_.blocks.slots().mapped()} + large_.blocks.slots().mapped()) +
         Bytes{exact_units_ * kUnit};
}

void Arena::note_mapped() {
  counts_.peak_pool_bytes = std::max(counts_.peak_pool_bytes, mapped());
}

Result<ArenaStats> Arena::stats(std::uint32_t look) {
  const ShortGuard guard(lock_);
  if (!guard.held()) return arena_busy();
  ArenaStats stats = counts_;
  std::uint64_t kept_units = 0;
  for (const ThreadMagazines& thread : magazines_) {
    const std::uint64_t allocations = thread.allocations.load(std::memory_order_relaxed);
    stats.magazine_hits += allocations;
    stats.live_blocks += allocations - thread.frees.load(std::memory_order_relaxed);
    kept_units += thread.kept();
  }
  stats.num_allocs += stats.magazine_hits;
  stats.magazine_bytes = Bytes{kept_units * kUnit};
  const Bytes live{(small_.blocks.live_units() + large_.blocks.live_units()) * kUnit};
  stats.bytes_in_use = saturating_sub(live, stats.magazine_bytes) + Bytes{exact_units_ * kUnit};
  peak_units_ = std::max(peak_units_, stats.bytes_in_use.value / kUnit);
  stats.peak_bytes_in_use = Bytes{peak_units_ * kUnit};
  stats.largest_alloc_size = Bytes{largest_units_ * kUnit};
  stats.pool_bytes = mapped();
  stats.largest_free_block_bytes =
      Bytes{std::max(small_.blocks.largest_free(look), large_.blocks.largest_free(look)) * kUnit};
  stats.idle_bytes = chunk_ * (std::uint64_t{small_.blocks.idle_slots()} + large_.blocks.idle_slots());
  const Bytes lost{(slabs_ ? small_.blocks.free_units(lost_) : 0) * kUnit};
  const auto free = [lost](std::uint64_t units) { return saturating_sub(Bytes{units * kUnit}, lost); };
  stats.cached_bytes = free(small_.blocks.free_units() + large_.blocks.free_units()) + stats.magazine_bytes;
  stats.graph_pool_bytes = free(small_.blocks.pool_units() + large_.blocks.pool_units());
  stats.pending_bytes = free(small_.blocks.pending_units() + large_.blocks.pending_units());
  if (stats.cached_bytes.value != 0) {
    stats.fragmentation = 1.0 - static_cast<double>(stats.largest_free_block_bytes.value) /
                                    static_cast<double>(stats.cached_bytes.value);
  }
  return stats;
}

Status Arena::check() {
  if (holds_a_lock()) return arena_busy();
  const SlowGuard slow(slow_);
  const SlowGuard claims(claims_);
  if (!slow.held() || !claims.held()) return arena_busy();
  std::uint64_t missed = 0;
  const std::uint64_t claimed = claim_all_magazines(missed);
  std::string broken;
  {
    const ShortGuard guard(lock_);
    APPORTION_CHECK(guard.held());
    if (missed == 0) broken = check_magazines();
    if (broken.empty()) broken = check_ranges();
  }
  unclaim_all_magazines(claimed);
  if (broken.empty()) return Done{};
  return Error{Errc::invalid, broken};
}

std::string Arena::check_ranges() const {
  for (const Range* range : {&small_, &large_}) {
    if (std::string broken = range->blocks.check(); !broken.empty()) {
      return std::string(range == &small_ ? "small range: " : "large range: ") + broken;
    }
  }
  Bytes exact{0};
  for (const auto& [address, block] : exact_) {
    const NodeId id = large_.blocks.find_live(static_cast<std::uint32_t>((address - large_.base) / kUnit));
    if (id == kNoNode || large_.blocks.node(id).state != BlockState::exact) {
      return "an exact block has no node";
    }
    exact += block.size;
  }
  if (exact.value != exact_units_ * kUnit) return "exact bytes are miscounted";
  return {};
}

}  // namespace apportion
