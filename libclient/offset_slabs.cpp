// The part of OffsetAllocator for memory that comes and goes in slabs: what is mapped at one time lies in the
// range as one run of slots, with a hole on either side, and leaves it whole.
//
// The hole between two slabs is what keeps blocks from spanning them: free neighbours join wherever they
// touch, and slabs never touch. So the fast path knows nothing of slabs.
#include <algorithm>
#include <new>

#include "libclient/offset_inline.hpp"
#include "shm/result.hpp"

namespace apportion {

bool OffsetAllocator::make_room_for_slab() {
  if (!slabs_) return true;
  try {
    slab_list_.reserve(slab_list_.size() + 1);
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

void OffsetAllocator::note_slab(std::uint32_t first, std::uint32_t slots) {
  if (!slabs_) return;
  APPORTION_CHECK(slab_list_.size() < slab_list_.capacity());
  const auto after = std::find_if(slab_list_.begin(), slab_list_.end(),
                                  [first](const Slab& slab) { return slab.first > first; });
  slab_list_.insert(after, {first, slots});
}

void OffsetAllocator::forget_slab(std::uint32_t slot) {
  const Slab* const slab = slab_of(slot);
  if (slab != nullptr) slab_list_.erase(slab_list_.begin() + (slab - slab_list_.data()));
}

const OffsetAllocator::Slab* OffsetAllocator::slab_of(std::uint32_t slot) const {
  const auto after = std::upper_bound(slab_list_.begin(), slab_list_.end(), slot,
                                      [](std::uint32_t at, const Slab& slab) { return at < slab.first; });
  if (after == slab_list_.begin()) return nullptr;
  const Slab& slab = *std::prev(after);
  return slot - slab.first < slab.slots ? &slab : nullptr;
}

bool OffsetAllocator::is_idle(const Slab& slab, std::uint8_t min_age) const {
  for (std::uint32_t slot = slab.first; slot != slab.first + slab.slots; ++slot) {
    if (!slots_.idle(slot) || slots_.age(slot) < min_age) return false;
  }
  return true;
}

std::uint32_t OffsetAllocator::idle_slab_slots() const {
  std::uint32_t slots = 0;
  if (slots_.idle() == 0) return slots;
  for (const Slab& slab : slab_list_)
    slots += is_idle(slab) ? slab.slots : 0;
  return slots;
}

// Whether the GPU has passed all of an idle slab. `id` lies before it, or in it, and is moved up to it.
bool OffsetAllocator::is_clean(const Slab& slab, NodeId& id) const {
  const std::uint32_t slot_units = slots_.units_per_slot();
  while (end_of(id) <= slab.first * slot_units)
    id = nodes_[id].next;
  return free_run(id, (slab.first + slab.slots) * slot_units, true);
}

std::vector<OffsetAllocator::TakenSlot> OffsetAllocator::take_idle_slabs(std::uint32_t limit, bool clean,
                                                                         std::uint8_t min_age,
                                                                         std::uint32_t most) {
  std::vector<Slab> chosen;
  std::uint32_t count = 0;
  NodeId id = first_;
  try {
    for (const Slab& slab : slab_list_) {
      if (count >= limit || slab.slots > most - count || !is_idle(slab, min_age)) continue;
      if (clean && !is_clean(slab, id)) continue;
      chosen.push_back(slab);
      count += slab.slots;
    }
    return take_slabs(chosen);
  } catch (const std::bad_alloc&) {
    return {};
  }
}

// Nothing is taken where the host has no memory.
std::vector<OffsetAllocator::TakenSlot> OffsetAllocator::take_slabs(const std::vector<Slab>& slabs) {
  const std::uint32_t slot_units = slots_.units_per_slot();
  std::uint32_t count = 0;
  for (const Slab& slab : slabs)
    count += slab.slots;
  std::vector<TakenSlot> taken;
  taken.reserve(count);
  if (!ensure_nodes(2 * count)) return taken;
  NodeId id = first_;
  for (const Slab& slab : slabs) {
    while (end_of(id) <= slab.first * slot_units)
      id = nodes_[id].next;
    for (std::uint32_t slot = slab.first; slot != slab.first + slab.slots; ++slot) {
      id = carve(id, slot * slot_units, slot_units);
      taken.push_back({slot, id});
      id = nodes_[id].next;
    }
  }
  return taken;
}

// --- slabs whose memory is gone

bool OffsetAllocator::lose_slab(std::uint32_t slot, Tag lost) {
  const Slab* const slab = slab_of(slot);
  if (slab == nullptr || slab->first != slot) return false;
  const std::uint32_t end = (slab->first + slab->slots) * slots_.units_per_slot();
  NodeId id = first_;
  while (end_of(id) <= slot * slots_.units_per_slot())
    id = nodes_[id].next;
  for (; id != kNoNode && nodes_[id].offset < end; id = nodes_[id].next) {
    const bool free = nodes_[id].state == BlockState::free;
    if (free) unlist_free(id);
    nodes_[id].tag = lost;  // whatever graph pool it was: that is no reason to use it again
    if (!free) continue;
    nodes_[id].epoch = nodes_[id].epoch != 0 ? nodes_[id].epoch : 1;
    if (const NodeId left = nodes_[id].prev; nodes_[left].state == BlockState::free) {
      unlist_free(left);
      join(left, id);
      id = left;
    }
    list_free(id);
  }
  return true;
}

std::uint64_t OffsetAllocator::lost_live_units(Tag lost) const {
  std::uint64_t units = 0;
  for (NodeId id = first_; id != kNoNode; id = nodes_[id].next) {
    if (nodes_[id].state == BlockState::live && nodes_[id].tag == lost) units += nodes_[id].units;
  }
  return units;
}

std::vector<OffsetAllocator::TakenSlot> OffsetAllocator::take_lost(Tag lost) {
  std::vector<Slab> chosen;
  try {
    for (NodeId id = first_; id != kNoNode; id = nodes_[id].next) {
      const BlockNode& node = nodes_[id];
      if (node.state != BlockState::free || node.tag != lost) continue;
      const Slab* const slab = slab_of(slots_.slot_of(node.offset));
      // Free blocks of one tag are joined, so where no block is live there is just one.
      if (node.units == slab->slots * slots_.units_per_slot()) chosen.push_back(*slab);
    }
    return take_slabs(chosen);
  } catch (const std::bad_alloc&) {
    return {};
  }
}

// --- the rules

std::string OffsetAllocator::check_slabs() const {
  if (!slabs_) return {};
  std::uint32_t mapped = 0;
  std::uint32_t end = 0;  // of the slab before
  for (const Slab& slab : slab_list_) {
    if (slab.slots == 0 || (mapped != 0 && slab.first <= end)) return "two slabs touch";
    end = slab.first + slab.slots;
    for (std::uint32_t slot = slab.first; slot != end; ++slot) {
      if (slots_.state(slot) != SlotMap::State::chunk) return "a slab is not mapped as a whole";
    }
    mapped += slab.slots;
  }
  return mapped == slots_.mapped() ? std::string{} : "a slot is mapped and in no slab";
}

}  // namespace apportion
