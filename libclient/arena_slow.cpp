// The arena's slow path: growth, moving idle chunks, synchronising, giving back. Everything
// here runs with the slow lock held, and takes the short lock only between calls of the source.
#include <algorithm>

#include "libclient/arena.hpp"
#include "libclient/host_memory.hpp"
#include "libclient/offset_inline.hpp"
#include "libclient/slow_path.hpp"

namespace apportion {

Result<Address> Arena::allocate_slow(Range& range, std::uint32_t units, Stream stream) {
  {
    // Whoever held the slow lock before may have made room.
    const Locked locked(lock_);
    ++counts_.arena_misses;
    if (const Address block = take_joined(range, units, stream); block != 0) return block;
  }
  // What other threads keep, before the GPU or the broker is asked.
  if (&range == &small_ && magazines_keep(units) && empty_magazines(std::nullopt).ok()) {
    const Locked locked(lock_);
    if (const Address block = take_joined(range, units, stream); block != 0) return block;
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
    if (const Address block = take_joined(range, units, stream); block != 0) return block;
    tags &= ~by_event;
  }
  // Streams that are gone or that cannot be told apart are never asked.
  if (tags == 0 || !synchronize(stream).ok()) return 0;
  release_tags();
  const Locked locked(lock_);
  return take_joined(range, units, stream);
}

bool Arena::wait_for(std::uint64_t tags) {
  const SlowGuard asks(asks_);
  if (!asks.held()) return false;
  std::array<Stream, kTags> streams{};
  std::size_t count = 0;
  std::uint32_t limit = 0;
  {
    const Locked locked(lock_);
    // Since they were chosen a stream may have gone, whose handle is nobody's or another stream's now, or be
    // captured.
    if (!tags_.can_ask(tags)) return false;
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
  const auto planned = [&] {
    const Locked locked(lock_);
    if (!range.blocks.plan(units, tags_.find(stream), growth_chunks_, place)) return false;
    if (!slabs_) taken = take_idle(place.needed, false, 0, ~0U);
    return true;
  };
  if (!planned() && !(close_up(range, stream) && planned())) {
    return Error{Errc::out_of_memory, "no run of addresses for " + to_text(Bytes{units * kUnit}) +
                                          ": the arena's range is too fragmented"};
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
      error = copy_of(status.error());
      retired = idle;
    }
  }
  if (!error && mapped < place.needed) {
    const auto lease = [&](std::uint32_t want) {
      return shielded(
          [&] { return source_.map(target + mapped * chunk_.value, place.needed - mapped, want); });
    };
    Result<std::uint32_t> leased = lease(place.wanted - mapped);
    if (!leased.ok() && slabs_ && make_room(leased.error(), chunk_ * place.needed))
      leased = lease(place.needed);
    if (leased.ok()) {
      APPORTION_CHECK(*leased >= place.needed - mapped && *leased <= place.wanted - mapped);
      mapped += *leased;
    } else {
      error = copy_of(leased.error());
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
  if (!sweeping_) note_idle();
  if (error) return *error;
  note_allocated(units);
  return range.base + range.blocks.node(block).offset * kUnit;
}

Status Arena::synchronize(Stream stream) {
  const SlowGuard asks(asks_);  // no capture that the arena is told of begins between the look and the call
  if (!asks.held()) return shielded([]() -> Status { return arena_busy(); });
  std::uint32_t limit = 0;
  {
    const Locked locked(lock_);
    // Known without asking the driver, so that the capture of a non-blocking stream stays whole too.
    if (tags_.capturing()) {
      return shielded([]() -> Status {
        return Error{Errc::busy,
                     "a stream is being captured; memory that must wait for the GPU is not to be had"};
      });
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

// The job has no more for this session, and part of what it holds here is idle: `needed` of that goes back,
// and the broker can be asked again.
bool Arena::make_room(const Error& refused, Bytes needed) {
  if (!out_of_room(refused)) return false;
  Bytes now;
  {
    const Locked locked(lock_);
    now = mapped();
  }
  return give_back(saturating_sub(now, needed), Quiesce::synchronize).bytes.value != 0;
}

Status Arena::reserve(Bytes bytes) {
  if (bytes > Bytes{large_.bytes}) {
    return Error{Errc::out_of_memory, "a reservation of " + to_text(bytes) + " is larger than the device"};
  }
  if (holds_a_lock()) return arena_busy();
  const SlowGuard guard(slow_);
  if (!guard.held()) return arena_busy();
  Range& range = range_for(chunk_);
  std::uint32_t count = 0;
  {
    const Locked locked(lock_);
    const Bytes missing = saturating_sub(bytes, mapped());
    if (missing.value == 0) return reserved_ = std::max(reserved_, bytes), Done{};
    count = static_cast<std::uint32_t>(round_up(missing, chunk_) / chunk_);
  }
  const Result<Run> hole = take_hole(range, count);
  if (!hole) return hole.error();
  const NodeId node = hole->node;
  const Address target = hole->address;
  const Result<std::uint32_t> leased = shielded([&] { return source_.map(target, count, count); });
  const Locked locked(lock_);
  ++counts_.growths;
  if (!leased.ok()) {
    range.blocks.drop(node, source_.lost());
    return leased.error();
  }
  APPORTION_CHECK(*leased == count);
  range.blocks.make_chunks(node);
  reserved_ = std::max(reserved_, bytes);
  counts_.chunks_leased += count;
  note_mapped();
  if (!sweeping_) note_idle();
  return Done{};
}

}  // namespace apportion
