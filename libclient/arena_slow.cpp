// The arena's slow path: growth, moving idle chunks, synchronising, giving back, exact blocks. Everything
// here runs with the slow lock held, and takes the short lock only between calls of the source.
#include <algorithm>
#include <new>

#include "libclient/arena.hpp"

namespace apportion {

namespace {

// The short lock for the slow path. It can always be had: a handler that interrupted its holder was turned
// away before it got the slow lock.
class Locked {
 public:
  explicit Locked(ShortLock& lock) noexcept : lock_(lock) { APPORTION_CHECK(lock_.lock()); }
  ~Locked() { lock_.unlock(); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  ShortLock& lock_;
};

Error no_host_memory() {
  return {Errc::out_of_memory, "no host memory"};  // so short that it is no allocation itself
}

// Calls the source. F31: where the host has no memory for the call, it has mapped and unmapped nothing.
template <typename Call>
auto shielded(Call&& call) -> decltype(call()) {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return no_host_memory();
  }
}

// Whether giving back what this process holds idle could turn the answer.
bool out_of_room(const Error& error) {
  return error.code == Errc::quota || error.code == Errc::out_of_memory;
}

}  // namespace

Result<Address> Arena::allocate_slow(Range& range, std::uint32_t units, Stream stream) {
  {
    // Whoever held the slow lock before may have made room.
    const Locked locked(lock_);
    ++counts_.arena_misses;
    if (const Address block = take(range, units, stream); block != 0) return block;
  }
  // What other threads keep, before the GPU or the broker is asked.
  if (&range == &small_ && magazines_keep(units) && empty_magazines(std::nullopt).ok()) {
    const Locked locked(lock_);
    if (const Address block = take(range, units, stream); block != 0) return block;
  }
  if (const Address block = settle_and_take(range, units, stream); block != 0) return block;
  return grow(range, units, stream);
}

Address Arena::settle_and_take(Range& range, std::uint32_t units, Stream stream) {
  std::uint64_t tags = 0;
  std::uint64_t by_event = 0;
  {
    const Locked locked(lock_);
    tags = range.blocks.tags_that_could_help(units, tags_.find(stream));
    by_event = tags_.with_events(tags);
  }
  if (by_event != 0 && wait_for(by_event)) {
    const Locked locked(lock_);
    if (const Address block = take(range, units, stream); block != 0) return block;
    tags &= ~by_event;
  }
  // Streams that are gone or that cannot be told apart are never asked.
  if (tags == 0 || !synchronize(stream).ok()) return 0;
  release_tags();
  const Locked locked(lock_);
  return take(range, units, stream);
}

bool Arena::wait_for(std::uint64_t tags) {
  std::array<Stream, kTags> streams{};
  std::size_t count = 0;
  std::uint32_t limit = 0;
  {
    const Locked locked(lock_);
    if (++epoch_ == 0) epoch_ = 1;  // it wraps; 0 is none
    limit = epoch_;
    for (std::uint64_t left = tags; left != 0; left &= left - 1)
      streams[count++] = tags_.stream_of(static_cast<Tag>(std::countr_zero(left)));
    counts_.events += count;
  }
  if (!shielded([&] { return source_.wait_for(std::span(streams).first(count)); }).ok()) return false;
  const Locked locked(lock_);
  small_.blocks.settle(limit, tags);
  large_.blocks.settle(limit, tags);
  return true;
}

Result<Address> Arena::grow(Range& range, std::uint32_t units, Stream stream) {
  OffsetAllocator::Placement place;
  Taken taken;
  {
    const Locked locked(lock_);
    if (!range.blocks.plan(units, tags_.find(stream), growth_chunks_, place)) {
      return Error{Errc::out_of_memory, "no run of addresses for " + to_text(Bytes{units * kUnit}) +
                                            ": the arena's range is too fragmented"};
    }
    taken = take_idle(place.needed);
  }
  const Address target = slot_address(range, place.slot);
  std::uint32_t moved = 0;
  std::uint32_t mapped = 0;
  std::uint32_t retired = 0;
  std::optional<Error> error;
  const auto idle = static_cast<std::uint32_t>(taken.nodes.size());
  const bool passed = idle != 0 && synchronize(stream).ok();
  if (passed) {
    if (const Status status = shielded([&] { return source_.move(taken.addresses, target); }); status.ok()) {
      moved = mapped = idle;
    } else if (source_.lost()) {
      error = status.error();
      retired = idle;
    }
  }
  if (!error && mapped < place.needed) {
    const Result<std::uint32_t> leased = shielded([&] {
      return source_.map(target + mapped * chunk_.value, place.needed - mapped, place.wanted - mapped);
    });
    if (leased.ok()) {
      APPORTION_CHECK(*leased >= place.needed - mapped && *leased <= place.wanted - mapped);
      mapped += *leased;
    } else {
      error = leased.error();
    }
    if (source_.lost()) retired = place.wanted - mapped;
  }

  const Locked locked(lock_);
  const NodeId block = range.blocks.finish(place, units, mapped, retired, passed);
  for (const Taken::Node& node : taken.nodes) {
    if (moved != 0) {
      node.blocks->drop(node.id, false);
    } else {
      node.blocks->put_back(node.id, passed);
    }
  }
  ++counts_.growths;
  counts_.chunks_moved += moved;
  counts_.chunks_leased += mapped - moved;
  note_mapped();
  if (error) return *error;
  note_allocated({units * kUnit});
  return range.base + range.blocks.node(block).offset * kUnit;
}

Arena::Taken Arena::take_idle(std::uint32_t limit, bool clean) {
  Taken taken;
  const std::uint32_t count = std::min(limit, small_.blocks.slots().idle() + large_.blocks.slots().idle());
  try {
    taken.nodes.reserve(count);
    taken.addresses.reserve(count);
  } catch (const std::bad_alloc&) {
    return taken;
  }
  for (Range* range : {&large_, &small_}) {
    const auto left = count - static_cast<std::uint32_t>(taken.nodes.size());
    for (const auto& slot : range->blocks.take_idle(left, clean)) {
      taken.nodes.push_back({&range->blocks, slot.node});
      taken.addresses.push_back(slot_address(*range, slot.slot));
    }
  }
  return taken;
}

Status Arena::synchronize(Stream stream) {
  std::uint32_t limit = 0;
  {
    const Locked locked(lock_);
    // Known without asking the driver, so that the capture of a non-blocking stream stays whole too.
    if (tags_.capturing()) {
      return Error{Errc::busy,
                   "a stream is being captured; memory that must wait for the GPU is not to be had"};
    }
    if (++epoch_ == 0) epoch_ = 1;  // it wraps; 0 is none
    limit = epoch_;
    ++counts_.synchronizes;
  }
  if (Status status = shielded([&] { return source_.synchronize(stream); }); !status.ok()) return status;
  const Locked locked(lock_);
  small_.blocks.settle(limit);
  large_.blocks.settle(limit);
  return Done{};
}

void Arena::release_tags() {
  // What is taken aside keeps its tag and is in no list: a tag released under it could come back as another
  // stream.
  const Locked locked(lock_);
  for (std::uint32_t tag = 1; tag < kUnknown; ++tag) {
    const auto one = static_cast<Tag>(tag);
    if (!tags_.is_pool(one) && !small_.blocks.carries(one) && !large_.blocks.carries(one)) tags_.release(one);
  }
}

Result<Bytes> Arena::trim_to(Bytes target) {
  if (lock_.held_by_this_thread()) return arena_busy();
  const SlowGuard guard(slow_);
  if (!guard.held()) return arena_busy();
  {
    const Locked locked(lock_);
    reserved_ = std::min(reserved_, target);
  }
  const Given given = give_back(target, Quiesce::synchronize);
  if (given.error) return *given.error;
  return given.bytes;
}

Arena::Given Arena::give(Bytes bytes, bool reserved_too, Quiesce how) {
  if (lock_.held_by_this_thread()) return {{}, arena_busy()};
  const SlowGuard guard(slow_);
  if (!guard.held()) return {{}, arena_busy()};
  Bytes target;
  {
    const Locked locked(lock_);
    target = saturating_sub(mapped(), bytes);
    if (!reserved_too) target = std::max(target, reserved_);
  }
  Given given = give_back(target, how);
  const Locked locked(lock_);
  reserved_ = std::min(reserved_, mapped());
  return given;
}

Status Arena::settle_by_events() {
  std::uint64_t tags = 0;
  {
    const Locked locked(lock_);
    if (tags_.capturing() || !source_.one_context()) {
      return Error{Errc::busy, "a capture, or a context of the program's own: only its own calls can wait"};
    }
    for (std::uint32_t tag = 1; tag < kUnknown; ++tag) {
      const auto one = static_cast<Tag>(tag);
      if (small_.blocks.carries(one) || large_.blocks.carries(one)) tags |= std::uint64_t{1} << tag;
    }
    tags = tags_.with_events(tags, true);
  }
  if (tags != 0 && !wait_for(tags)) return Error{Errc::busy, "a stream is being captured"};
  return Done{};
}

Arena::Given Arena::give_back(Bytes target, Quiesce how) {
  Taken taken;
  {
    const Locked locked(lock_);
    if (mapped() <= target) return {};
  }
  static_cast<void>(empty_magazines(std::nullopt).ok());
  const bool by_events = how == Quiesce::events;
  if (by_events) {
    if (Status settled = settle_by_events(); !settled) return {{}, settled.error()};
  }
  {
    const Locked locked(lock_);
    const Bytes above = saturating_sub(mapped(), target);
    taken = take_idle(static_cast<std::uint32_t>(round_up(above, chunk_) / chunk_), by_events);
  }
  if (taken.nodes.empty()) return {};
  ChunkSource::Returned returned;
  // K4: nobody can get these any more, so no work on them can come after what is waited for here.
  const Status passed = by_events ? Status(Done{}) : synchronize(kNoStream);
  if (passed.ok()) {
    try {
      returned = source_.unmap(taken.addresses);
    } catch (const std::bad_alloc&) {
      returned.error = no_host_memory();
    }
  } else {
    returned.error = passed.error();
  }
  const Locked locked(lock_);
  for (std::size_t index = 0; index < taken.nodes.size(); ++index) {
    const Taken::Node& node = taken.nodes[index];
    const bool lost = index >= returned.count && index < returned.count + returned.lost;
    if (index < returned.count || lost) {
      node.blocks->drop(node.id, lost);
    } else {
      node.blocks->put_back(node.id, passed.ok());
    }
  }
  counts_.chunks_returned += returned.count;
  return {chunk_ * returned.count, std::move(returned.error)};
}

Status Arena::reserve(Bytes bytes) {
  if (bytes > Bytes{large_.bytes}) {
    return Error{Errc::out_of_memory, "a reservation of " + to_text(bytes) + " is larger than the device"};
  }
  if (lock_.held_by_this_thread()) return arena_busy();
  const SlowGuard guard(slow_);
  if (!guard.held()) return arena_busy();
  NodeId node = kNoNode;
  std::uint32_t count = 0;
  Address target = 0;
  {
    const Locked locked(lock_);
    const Bytes missing = saturating_sub(bytes, mapped());
    if (missing.value == 0) return reserved_ = std::max(reserved_, bytes), Done{};
    count = static_cast<std::uint32_t>(round_up(missing, chunk_) / chunk_);
    node = large_.blocks.take_hole(count);
    if (node == kNoNode) return Error{Errc::out_of_memory, "no run of addresses for " + to_text(missing)};
    target = large_.base + large_.blocks.node(node).offset * kUnit;
  }
  const Result<std::uint32_t> leased = shielded([&] { return source_.map(target, count, count); });
  const Locked locked(lock_);
  ++counts_.growths;
  if (!leased.ok()) {
    large_.blocks.drop(node, source_.lost());
    return leased.error();
  }
  APPORTION_CHECK(*leased == count);
  large_.blocks.make_chunks(node);
  reserved_ = std::max(reserved_, bytes);
  counts_.chunks_leased += count;
  note_mapped();
  return Done{};
}

Result<Address> Arena::allocate_exact(Bytes bytes) {
  if (bytes.value == 0) return Error{Errc::invalid, "an allocation of 0 bytes; ask for at least 1"};
  if (bytes.value > large_.bytes) {
    return Error{Errc::out_of_memory, "an allocation of " + to_text(bytes) + " is larger than the device"};
  }
  if (lock_.held_by_this_thread()) return arena_busy();
  const SlowGuard guard(slow_);
  if (!guard.held()) return arena_busy();
  const Bytes size = round_up(bytes, granularity_);
  NodeId node = kNoNode;
  Address block = 0;
  {
    const Locked locked(lock_);
    ++counts_.arena_misses;
    node = large_.blocks.take_hole(static_cast<std::uint32_t>(round_up(size, chunk_) / chunk_));
    if (node == kNoNode) return Error{Errc::out_of_memory, "no run of addresses for " + to_text(size)};
    block = large_.base + large_.blocks.node(node).offset * kUnit;
    if (Status noted = shielded([&]() -> Status { return exact_.emplace(block, size), Done{}; }); !noted) {
      large_.blocks.drop(node, false);
      return noted.error();
    }
  }
  Status status = shielded([&] { return source_.map_exact(block, size); });
  // The job is at its limit, and part of what it holds is idle here: give that back first.
  if (!status.ok() && out_of_room(status.error())) {
    if (give_back({0}, Quiesce::synchronize).bytes.value > 0)
      status = shielded([&] { return source_.map_exact(block, size); });
  }
  const Locked locked(lock_);
  if (!status.ok()) {
    exact_.erase(block);
    large_.blocks.drop(node, source_.lost());
    return status.error();
  }
  large_.blocks.make_exact(node);
  exact_bytes_ += size;
  ++counts_.growths;
  note_allocated(size);
  note_mapped();
  return block;
}

Status Arena::free_exact(Address block) {
  NodeId node = kNoNode;
  Bytes size{0};
  {
    const Locked locked(lock_);
    node = large_.blocks.find_live(static_cast<std::uint32_t>((block - large_.base) / kUnit));
    if (node == kNoNode || large_.blocks.node(node).state != BlockState::exact) return not_live(block);
    size = exact_.at(block);
    large_.blocks.take_exact(node);  // a second free finds nothing from here on
  }
  Status status = synchronize(kNoStream);
  const bool synchronised = status.ok();
  if (synchronised) status = shielded([&] { return source_.unmap_exact(block, size); });
  const bool lost = synchronised && !status.ok() && source_.lost();
  const Locked locked(lock_);
  if (!status.ok() && !lost) {
    large_.blocks.make_exact(node);  // it is mapped still, and live still
    return status;
  }
  large_.blocks.drop(node, lost);
  exact_.erase(block);
  exact_bytes_ -= size;
  --counts_.live_blocks;
  return status;
}

}  // namespace apportion
