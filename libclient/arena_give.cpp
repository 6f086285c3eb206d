// How chunks leave the arena: trimmed by the program, asked for by the broker, or idle for long. With the
// slow lock held; the short one is taken only between calls of the source.
#include <algorithm>
#include <utility>

#include "libclient/arena.hpp"
#include "libclient/host_memory.hpp"
#include "libclient/slow_path.hpp"

namespace apportion {

Result<Bytes> Arena::trim_to(Bytes target) {
  if (holds_a_lock()) return arena_busy();
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
  if (holds_a_lock()) return {{}, arena_busy()};
  const SlowGuard guard(slow_);
  if (!guard.held()) return {{}, arena_busy()};
  Bytes target;
  Bytes floor;
  {
    const Locked locked(lock_);
    if (!reserved_too) floor = reserved_;
    target = std::max(saturating_sub(mapped(), bytes), floor);
  }
  Given given = give_back(target, how, 0, floor);
  const Locked locked(lock_);
  reserved_ = std::min(reserved_, mapped());
  return given;
}

bool Arena::sweep() {
  if (holds_a_lock()) return true;
  const SlowGuard guard(slow_);
  if (!guard.held()) return true;
  {
    const Locked locked(lock_);
    assigned_ = false;
  }
  const bool kept = empty_sleepers();
  SlotMap::Ages ages;
  Bytes target;
  Bytes floor;
  {
    const Locked locked(lock_);
    floor = reserved_;
    for (Range* range : {&small_, &large_}) {
      const SlotMap::Ages some = range->blocks.slots().grow_older(kRipe);
      ages.ripe += some.ripe;
      ages.young += some.young;
    }
    target = std::max(saturating_sub(mapped(), chunk_ * ages.ripe), floor);
    // At rest nothing wakes: what is ripe and cannot go now is looked at again after another free.
    sweeping_ = kept || assigned_ || ages.young != 0;
  }
  if (ages.ripe != 0) static_cast<void>(give_back(target, Quiesce::events, kRipe, floor));
  const Locked locked(lock_);
  if (sweeping_) due_.store(false, std::memory_order_relaxed);
  return sweeping_;
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

Arena::Given Arena::give_back(Bytes target, Quiesce how, std::uint8_t min_age, Bytes floor) {
  Taken taken;
  {
    const Locked locked(lock_);
    if (mapped() <= target) return {};
  }
  if (min_age == 0) static_cast<void>(empty_magazines(std::nullopt).ok());
  {
    const Locked locked(lock_);
    // All that is not live is less than a chunk: nothing to wait for the GPU for.
    if (saturating_sub(mapped(), Bytes{units_in_use() * kUnit}) < chunk_) return {};
  }
  const bool by_events = how == Quiesce::events;
  if (by_events) {
    if (Status settled = settle_by_events(); !settled) return {{}, settled.error()};
  }
  {
    const Locked locked(lock_);
    const Bytes above = saturating_sub(mapped(), target);
    taken = take_idle(static_cast<std::uint32_t>(round_up(above, chunk_) / chunk_), by_events, min_age,
                      static_cast<std::uint32_t>(saturating_sub(mapped(), floor) / chunk_));
  }
  return taken.nodes.empty() ? Given{} : let_go(taken, how);
}

Arena::Given Arena::let_go(const Taken& taken, Quiesce how) {
  ChunkSource::Returned returned;
  // K4: nobody can get these any more, so no work on them can come after what is waited for here.
  const Status passed = how == Quiesce::events ? Status(Done{}) : synchronize(kNoStream);
  if (passed.ok()) {
    try {
      returned = source_.unmap(taken.addresses);
    } catch (const std::bad_alloc&) {
      returned.error = no_host_memory();
    }
  } else {
    returned.error = copy_of(passed.error());
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

Arena::Taken Arena::take_idle(std::uint32_t limit, bool clean, std::uint8_t min_age, std::uint32_t most) {
  Taken taken;
  const std::uint32_t idle = small_.blocks.slots().idle() + large_.blocks.slots().idle();
  const std::uint32_t count = std::min(limit, idle);
  const std::uint32_t room = slabs_ ? idle : count;  // slabs go whole
  try {
    taken.nodes.reserve(room);
    taken.addresses.reserve(room);
  } catch (const std::bad_alloc&) {
    return taken;
  }
  for (Range* range : {&large_, &small_}) {
    const auto already = static_cast<std::uint32_t>(taken.nodes.size());
    for (const auto& slot : range->blocks.take_idle(count - std::min(count, already), clean, min_age, most)) {
      taken.nodes.push_back({&range->blocks, slot.node});
      taken.addresses.push_back(slot_address(*range, slot.slot));
    }
  }
  return taken;
}

}  // namespace apportion
