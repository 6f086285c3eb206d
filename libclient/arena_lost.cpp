// Slabs whose memory is gone (F52): the process that owned it has died.
//
// What is in them belongs to a graph pool that is never released: so it is nobody's, a free of it finds it, and it
// pins its slab until its last block is freed. What threads keep of it they may hand out once more before
// settle_lost, as they did right before the loss: until that says 0, the caller must not let anybody allocate.
#include <new>

#include "libclient/arena.hpp"

namespace apportion {

Status Arena::lose(std::span<const Address> slabs) {
  if (lock_.held_by_this_thread()) return arena_busy();
  const SlowGuard slow(slow_);
  if (!slow.held()) return arena_busy();
  const ShortGuard guard(lock_);
  APPORTION_CHECK(guard.held());
  for (const Address slab : slabs) {
    if (!slabs_ || slab - small_.base >= small_.bytes) continue;
    const auto slot = static_cast<std::uint32_t>((slab - small_.base) / chunk_.value);
    static_cast<void>(small_.blocks.lose_slab(slot, lost_));
  }
  return Done{};
}

Result<Bytes> Arena::settle_lost() {
  if (!slabs_) return Bytes{0};
  if (lock_.held_by_this_thread()) return arena_busy();
  const SlowGuard slow(slow_);
  if (!slow.held()) return arena_busy();
  if (Status emptied = empty_magazines(std::nullopt); !emptied) return emptied.error();
  Taken taken;
  Bytes live;
  {
    const ShortGuard guard(lock_);
    APPORTION_CHECK(guard.held());
    live = Bytes{small_.blocks.lost_live_units(lost_) * kUnit};
    taken = take_lost();
  }
  if (!taken.nodes.empty()) {
    if (const Result<Bytes> given = let_go(taken); !given) return given.error();
  }
  return live;
}

Arena::Taken Arena::take_lost() {
  Taken taken;
  try {
    taken.nodes.reserve(small_.blocks.slots().mapped());
    taken.addresses.reserve(small_.blocks.slots().mapped());
  } catch (const std::bad_alloc&) {
    return {};
  }
  for (const auto& slot : small_.blocks.take_lost(lost_)) {
    taken.nodes.push_back({&small_.blocks, slot.node});
    taken.addresses.push_back(slot_address(small_, slot.slot));
  }
  return taken;
}

}  // namespace apportion
