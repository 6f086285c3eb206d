// The arena's small blocks: through the calling thread's magazines where it can be, and back from
// everybody's.
//
// A block in a magazine is live in its range, and marked in the range's table. What a thread does with its
// own magazines needs no lock; what fills or empties them holds the short lock, inside the owner's flag.
#include "libclient/arena.hpp"
#include "libclient/offset_inline.hpp"

namespace apportion {

namespace {

void bump(std::atomic<std::uint64_t>& count) noexcept {
  count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

}  // namespace

// The calling thread inside its own magazines; none where it has none, they are claimed, or this is a
// handler.
class Arena::Own {
 public:
  explicit Own(Arena& arena) noexcept : mine_(arena.magazines_.find()) {
    Magazines& all = arena.magazines_;
    if (mine_ == nullptr && !all.asked()) mine_ = all.obtain(arena.lock_);
    if (mine_ == nullptr || mine_->flag.enter(all.barrier())) return;
    if (!mine_->flag.enter_stale()) {
      mine_ = nullptr;
      return;
    }
    // A stream went while this thread was stopped inside: whose blocks these are is not known any more.
    const ShortGuard guard(arena.lock_);
    if (guard.held()) {
      for (Magazine& magazine : mine_->streams)
        arena.flush_all_as(*mine_, magazine, kUnknown);
      return;
    }
    mine_->flag.mark_stale();
    mine_->flag.leave();
    mine_ = nullptr;
  }
  ~Own() {
    if (mine_ != nullptr) mine_->flag.leave();
  }
  Own(const Own&) = delete;
  Own& operator=(const Own&) = delete;
  [[nodiscard]] explicit operator bool() const noexcept { return mine_ != nullptr; }
  ThreadMagazines& operator*() const noexcept { return *mine_; }

 private:
  ThreadMagazines* mine_;
};

// --- without a lock

Address Arena::pop(std::uint32_t units, Stream stream) noexcept {
  ThreadMagazines* const mine = magazines_.find();
  if (mine == nullptr || !mine->flag.enter(magazines_.barrier())) return 0;
  Magazine& magazine = mine->streams[mine->near];
  Address block = 0;
  if (magazine.stream == stream && magazine.count(units) != 0) {
    const std::uint32_t unit = magazine.pop(units);
    BlockTable& table = small_.blocks.table();
    table.set(unit, table.get(unit) & ~BlockTable::kKept);
    mine->subtract(units);
    bump(mine->allocations);
    block = small_.base + unit * kUnit;
  }
  mine->flag.leave();
  return block;
}

bool Arena::push(std::uint32_t unit, Stream stream) noexcept {
  BlockTable& table = small_.blocks.table();
  const BlockTable::Entry entry = table.get(unit);
  const std::uint32_t units = BlockTable::size_of(entry);
  if (units == 0 || (entry & BlockTable::kKept) != 0) return false;  // large, or not live: the lock's matter
  stream = StreamTags::canonical(stream);
  ThreadMagazines* const mine = magazines_.find();
  if (mine != nullptr && mine->flag.enter(magazines_.barrier())) {
    Magazine& magazine = mine->streams[mine->near];
    const bool fits = magazine.stream == stream && !magazine.full(units) &&
                      mine->kept() + units <= ThreadMagazines::kCapUnits;
    if (fits) {
      keep(*mine, magazine, units, unit);
      bump(mine->frees);
    }
    mine->flag.leave();
    if (fits) return true;
  }
  return push_slow(unit, entry, stream);
}

void Arena::keep(ThreadMagazines& mine, Magazine& magazine, std::uint32_t units,
                 std::uint32_t unit) noexcept {
  BlockTable& table = small_.blocks.table();
  table.set(unit, table.get(unit) | BlockTable::kKept);
  magazine.push(units, unit);
  mine.add(units);
}

// --- with the short lock

[[gnu::noinline]] Address Arena::refill(std::uint32_t units, Stream stream) noexcept {
  const Own own(*this);
  const ShortGuard guard(lock_);
  if (!guard.held()) return 0;
  Magazine* const magazine = own ? magazine_for(*own, stream) : nullptr;
  std::array<std::uint32_t, Magazine::capacity(1) / 2> offsets;
  std::uint32_t got = 0;
  if (magazine != nullptr && magazine->count(units) != 0) {
    offsets[got++] = magazine->pop(units);  // the thread has changed streams
    BlockTable& table = small_.blocks.table();
    table.set(offsets[0], table.get(offsets[0]) & ~BlockTable::kKept);
    (*own).subtract(units);
  } else {
    std::uint32_t want = 1;
    if (magazine != nullptr) {
      const std::uint32_t half = Magazine::capacity(units) / 2;
      if ((*own).kept() + half * units > ThreadMagazines::kCapUnits) {
        for (Magazine& each : (*own).streams)
          flush_all(*own, each);
      }
      want = half;
    }
    got = small_.blocks.allocate_several(units, tags_.find(stream), want, offsets.data());
    for (std::uint32_t index = 1; index < got; ++index)
      keep(*own, *magazine, units, offsets[index]);
  }
  if (own) publish(*own);
  if (got == 0) return 0;
  note_allocated(units);
  ++counts_.arena_hits;
  return small_.base + offsets[0] * kUnit;
}

[[gnu::noinline]] bool Arena::push_slow(std::uint32_t unit, BlockTable::Entry entry, Stream stream) noexcept {
  const std::uint32_t units = BlockTable::size_of(entry);
  const Own own(*this);
  if (!own) return false;
  ThreadMagazines& mine = *own;
  const ShortGuard guard(lock_);
  if (!guard.held()) return false;
  Magazine* const magazine = magazine_for(mine, stream);
  if (magazine == nullptr) return false;
  if (mine.kept() + units > ThreadMagazines::kCapUnits) {
    for (Magazine& each : mine.streams)
      flush_all(mine, each);
  } else if (magazine->full(units)) {
    flush(mine, *magazine, units, Magazine::capacity(units) / 2, tags_.acquire(stream));
  }
  keep(mine, *magazine, units, unit);
  bump(mine.frees);
  publish(mine);
  return true;
}

Magazine* Arena::magazine_for(ThreadMagazines& mine, Stream stream) noexcept {
  for (std::uint32_t index = 0; index < ThreadMagazines::kStreams; ++index) {
    if (mine.streams[index].stream != stream) continue;
    mine.near = index;
    return &mine.streams[index];
  }
  if (stream == StreamTags::kPerThread || tags_.pool_of(stream) != kClean) return nullptr;
  std::uint32_t place = 0;
  while (place < ThreadMagazines::kStreams && mine.streams[place].stream != Magazine::kVacant)
    ++place;
  if (place == ThreadMagazines::kStreams) {
    // More streams than places: one gives way now and then, so that streams in turn do not empty each other.
    if (++mine.turn % 16 != 0) return nullptr;
    place = mine.turn / 16 % ThreadMagazines::kStreams;
    flush_all(mine, mine.streams[place]);
  }
  mine.streams[place].stream = stream;
  mine.near = place;
  return &mine.streams[place];
}

void Arena::flush(ThreadMagazines& mine, Magazine& magazine, std::uint32_t units, std::uint32_t many,
                  Tag tag) noexcept {
  BlockTable& table = small_.blocks.table();
  for (std::uint32_t index = 0; index < many; ++index) {
    const std::uint32_t unit = magazine.at(units, index);
    small_.blocks.release(BlockTable::node_of(table.get(unit)), tag, epoch_);
  }
  magazine.forget(units, many);
  mine.subtract(units * many);
}

// The magazine is vacant then.
void Arena::flush_all(ThreadMagazines& mine, Magazine& magazine) noexcept {
  if (magazine.stream != Magazine::kVacant) flush_all_as(mine, magazine, tags_.acquire(magazine.stream));
}

void Arena::flush_all_as(ThreadMagazines& mine, Magazine& magazine, Tag tag) noexcept {
  for (std::uint32_t units = 1; units <= Magazine::kMost; ++units)
    flush(mine, magazine, units, magazine.count(units), tag);
  magazine.stream = Magazine::kVacant;
  publish(mine);
}

void Arena::publish(ThreadMagazines& mine) noexcept {
  kept_units_ += std::uint64_t{mine.kept()} - mine.published;
  mine.published = mine.kept();
}

// --- other threads' magazines

bool Arena::magazines_keep(std::uint32_t units) const noexcept {
  std::uint64_t kept = 0;
  for (const ThreadMagazines& thread : magazines_)
    kept += thread.kept();
  return kept >= units;
}

// One bit a thread: what was claimed, and in `missed` what could not be. empty_too: also those that keep
// nothing.
std::uint64_t Arena::claim_magazines(bool empty_too, std::uint64_t& missed) noexcept {
  std::uint64_t claimed = 0;
  ThreadMagazines* const first = magazines_.begin();
  for (ThreadMagazines& thread : magazines_) {
    if (!empty_too && thread.kept() == 0) continue;
    thread.flag.claim();
    claimed |= std::uint64_t{1} << (&thread - first);
  }
  if (claimed == 0) return 0;
  const bool seen = magazines_.barrier().run();
  for (std::uint64_t left = claimed; left != 0; left &= left - 1) {
    const auto index = static_cast<std::uint32_t>(std::countr_zero(left));
    if (seen && first[index].flag.wait_left()) continue;
    missed |= std::uint64_t{1} << index;
    first[index].flag.unclaim();
  }
  return claimed & ~missed;
}

void Arena::unclaim_magazines(std::uint64_t claimed) noexcept {
  for (; claimed != 0; claimed &= claimed - 1)
    magazines_.begin()[std::countr_zero(claimed)].flag.unclaim();
}

Status Arena::empty_magazines(std::optional<Stream> gone) {
  const SlowGuard claims(claims_);
  if (!claims.held() || lock_.held_by_this_thread()) return arena_busy();
  std::uint64_t missed = 0;
  const std::uint64_t claimed = claim_magazines(false, missed);
  ThreadMagazines* const first = magazines_.begin();
  if (claimed != 0) {
    const ShortGuard guard(lock_);
    APPORTION_CHECK(guard.held());
    for (std::uint64_t left = claimed; left != 0; left &= left - 1) {
      ThreadMagazines& thread = first[std::countr_zero(left)];
      for (Magazine& magazine : thread.streams) {
        if (gone && magazine.stream != *gone) continue;
        flush_all(thread, magazine);
      }
    }
  }
  unclaim_magazines(claimed);
  for (; gone && missed != 0; missed &= missed - 1)
    first[std::countr_zero(missed)].flag.mark_stale();
  return Done{};
}

// With everything claimed, and the short lock held.
std::string Arena::check_magazines() const {
  std::uint64_t blocks = 0;
  std::uint64_t published = 0;
  for (const ThreadMagazines& thread : magazines_) {
    std::uint32_t kept = 0;
    for (const Magazine& magazine : thread.streams) {
      for (std::uint32_t units = 1; units <= Magazine::kMost; ++units) {
        if (magazine.count(units) > Magazine::capacity(units)) return "a magazine is over-full";
        for (std::uint32_t index = 0; index < magazine.count(units); ++index) {
          const BlockTable::Entry entry = small_.blocks.table().get(magazine.at(units, index));
          if ((entry & BlockTable::kKept) == 0 || BlockTable::size_of(entry) != units)
            return "a magazine keeps a block that is not marked as its own";
          if (small_.blocks.node(BlockTable::node_of(entry)).units != units)
            return "a magazine keeps a block of another size";
          if (magazine.stream == Magazine::kVacant) return "a vacant magazine keeps a block";
          kept += units;
          ++blocks;
        }
      }
    }
    if (kept != thread.kept()) return "what a thread's magazines keep is miscounted";
    published += thread.published;
  }
  if (published != kept_units_) return "what magazines keep is miscounted";
  if (blocks != small_.blocks.table().count().kept) return "a block is marked as a magazine's and is in none";
  return {};
}

}  // namespace apportion
