// Slabs whose memory is gone (F52): the process that owned it has died.
//
// What is in them belongs to a graph pool that is never released: so it is nobody's, a free of it finds it,
// and it pins its slab until its last block is freed. What threads keep of it they may hand out once more
// before settle_lost, as they did right before the loss: until that says 0, the caller must not let anybody
// allocate.
#include <new>

#include "libclient/arena.hpp"

namespace apportion {

void Arena::lose(Address slab) {
  if (slab - small_.base < small_.bytes) {
    static_cast<void>(
        small_.blocks.lose_slab(static_cast<std::uint32_t>((slab - small_.base) / chunk_.value), lost_));
  } else if (const auto block = exact_.find(slab); block != exact_.end()) {
    block->second.gone = true;
  }
}

Bytes Arena::lost_live() const {
  Bytes live{small_.blocks.lost_live_units(lost_) * kUnit};
  for (const auto& [address, block] : exact_)
    live += block.gone ? block.size : 0_B;
  return live;
}

Result<Bytes> Arena::settle_lost() {
  if (!slabs_) return Bytes{0};
  if (holds_a_lock()) return arena_busy();
  const SlowGuard slow(slow_);
  if (!slow.held()) return arena_busy();
  const std::vector<Address> gone = source_.take_gone();
  {
    const ShortGuard guard(lock_);
    APPORTION_CHECK(guard.held());
    for (const Address slab : gone)
      lose(slab);
  }
  if (Status emptied = empty_magazines(std::nullopt); !emptied) return emptied.error();
  Taken taken;
  Bytes live;
  {
    const ShortGuard guard(lock_);
    APPORTION_CHECK(guard.held());
    live = lost_live();
    taken = take_lost();
  }
  if (!taken.nodes.empty()) {
    if (const Given given = let_go(taken, Quiesce::synchronize); given.error) return *given.error;
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
