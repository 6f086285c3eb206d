// The part of OffsetAllocator that works on whole slots: growth, idle chunks, exact blocks, holes.
#include <algorithm>
#include <new>

#include "libclient/offset_inline.hpp"
#include "shm/result.hpp"

namespace apportion {

namespace {
constexpr std::uint32_t kFinishNodes = 3;  // what finish() splits off at most: fresh, retired, the block

std::uint32_t slots_for(std::uint32_t units, std::uint32_t units_per_slot) {
  return units / units_per_slot + (units % units_per_slot != 0 ? 1U : 0U);
}
}  // namespace

bool OffsetAllocator::plan(std::uint32_t units, Tag tag, std::uint32_t at_least_slots, Placement& placement) {
  const std::uint32_t slot_units = slots_.units_per_slot();
  const auto usable = [&](NodeId id) -> std::uint32_t {
    const BlockNode& node = nodes_[id];
    return !slabs_ && id != kNoNode && node.state == BlockState::free &&
                   (node.tag == kClean || (node.tag == tag && !is_pool(tag)))
               ? node.units
               : 0U;
  };
  struct Choice {
    NodeId hole = kNoNode;
    std::uint32_t needed = 0;
    bool from_right = false;
  } best;
  const auto consider = [&](NodeId hole, std::uint32_t needed, bool from_right) {
    const std::uint32_t room = room_of(hole);
    if (needed == 0 || needed > room) return;
    if (best.hole != kNoNode) {
      if (needed > best.needed) return;
      if (needed == best.needed && nodes_[hole].units >= nodes_[best.hole].units) return;
    }
    best = {hole, needed, from_right};
  };
  for (NodeId hole = holes_; hole != kNoNode; hole = nodes_[hole].list_next) {
    const std::uint32_t left = usable(nodes_[hole].prev);
    const std::uint32_t right = usable(nodes_[hole].next);
    consider(hole, slots_for(units - std::min(left, units), slot_units), false);
    if (right != 0) consider(hole, slots_for(units - std::min(right, units), slot_units), true);
    const std::uint64_t whole = std::uint64_t{left} + nodes_[hole].units + right;
    if (left != 0 && right != 0 && whole >= units) consider(hole, nodes_[hole].units / slot_units, false);
  }
  if (best.hole == kNoNode || !ensure_nodes(2 + kFinishNodes) || !make_room_for_slab()) return false;

  const std::uint32_t room = room_of(best.hole);
  const std::uint32_t wanted =
      best.from_right ? best.needed : std::min(room, std::max(best.needed, at_least_slots));
  NodeId part = best.hole;
  if (wanted < room && best.from_right) {
    unlist_hole(best.hole);
    part = split(best.hole, (room - wanted) * slot_units);
    list_hole(best.hole);
    nodes_[part].state = BlockState::busy;
  } else {
    part = cut_hole(best.hole, wanted);
  }
  if (!table_.cover(nodes_[part].offset, nodes_[part].units)) {
    make_hole(part);
    return false;
  }
  placement = {part, kNoNode, kNoNode, slots_.slot_of(nodes_[part].offset), best.needed, wanted, tag};
  const auto take_aside = [&](NodeId id) {
    if (usable(id) == 0) return kNoNode;
    unlist_free(id);
    nodes_[id].state = BlockState::busy;
    return id;
  };
  promised_ = kFinishNodes;
  if (!best.from_right) placement.left = take_aside(nodes_[part].prev);
  if (best.from_right || best.needed == room) placement.right = take_aside(nodes_[part].next);
  return true;
}

void OffsetAllocator::put_back(NodeId taken, bool passed) {
  if (passed && !is_pool(nodes_[taken].tag)) {
    nodes_[taken].tag = kClean;
    nodes_[taken].epoch = 0;
  }
  make_free(taken);
}

NodeId OffsetAllocator::finish(const Placement& placement, std::uint32_t units, std::uint32_t mapped,
                               std::uint32_t retired, bool passed) {
  const std::uint32_t slot_units = slots_.units_per_slot();
  NodeId rest = placement.hole;
  const auto cut = [&](std::uint32_t slots) {
    const NodeId front = rest;
    rest = nodes_[front].units > slots * slot_units ? split(front, slots * slot_units) : kNoNode;
    return front;
  };
  promised_ = 0;
  const NodeId fresh = mapped != 0 ? cut(mapped) : kNoNode;
  if (fresh != kNoNode) {
    set_slots(fresh, SlotMap::State::chunk);
    note_slab(placement.slot, mapped);
  }
  if (retired != 0 && rest != kNoNode) set_slots(cut(retired), SlotMap::State::retired);
  if (rest != kNoNode) make_hole(rest);

  for (const NodeId neighbour : {placement.left, placement.right}) {
    if (neighbour == kNoNode || !passed) continue;
    nodes_[neighbour].tag = kClean;
    nodes_[neighbour].epoch = 0;
  }
  if (mapped < placement.needed) {
    for (const NodeId part : {placement.left, fresh, placement.right}) {
      if (part != kNoNode) make_free(part);
    }
    return kNoNode;
  }
  // The block is cut out before anything is free again: a clean chunk that first joined what another stream
  // freed beside it would be that stream's.
  NodeId block = fresh;
  if (placement.left != kNoNode) {
    join(placement.left, fresh);
    block = placement.left;
  }
  if (placement.right != kNoNode) join(block, placement.right);
  if (nodes_[block].units > units) make_free(split(block, units));
  make_live(block, placement.tag);
  return block;
}

NodeId OffsetAllocator::carve(NodeId id, std::uint32_t first, std::uint32_t units) {
  unlist_free(id);
  if (nodes_[id].offset < first) {
    const NodeId rest = split(id, first - nodes_[id].offset);
    list_free(id);
    id = rest;
  }
  Tag last_tag = nodes_[id].tag;
  std::uint32_t last_epoch = nodes_[id].epoch;
  while (end_of(id) < first + units) {
    const NodeId next = nodes_[id].next;
    unlist_free(next);
    last_tag = nodes_[next].tag;
    last_epoch = nodes_[next].epoch;
    // Freed on several streams: nobody's before a synchronise.
    nodes_[id].tag = kUnknown;
    nodes_[id].epoch = newest(nodes_[id].epoch, last_epoch);
    join(id, next);
  }
  if (end_of(id) > first + units) {
    const NodeId rest = split(id, units);
    nodes_[rest].tag = last_tag;
    nodes_[rest].epoch = last_epoch;
    list_free(rest);
  }
  nodes_[id].state = BlockState::busy;
  return id;
}

// Without a live block a slot is all free, or in part a neighbour that this growth has taken aside already.
bool OffsetAllocator::free_run(NodeId id, std::uint32_t end, bool clean) const {
  const auto fits = [&] {
    return nodes_[id].state == BlockState::free && (!clean || nodes_[id].tag == kClean);
  };
  while (fits() && end_of(id) < end)
    id = nodes_[id].next;
  return fits();
}

std::vector<OffsetAllocator::TakenSlot> OffsetAllocator::take_idle(std::uint32_t limit, bool clean,
                                                                   std::uint8_t min_age, std::uint32_t most) {
  if (slabs_) return take_idle_slabs(limit, clean, min_age, most);
  const std::uint32_t slot_units = slots_.units_per_slot();
  const std::uint32_t count = std::min(limit, slots_.idle());
  std::vector<TakenSlot> taken;
  if (count == 0 || !ensure_nodes(2 * count)) return taken;
  try {
    taken.reserve(count);
  } catch (const std::bad_alloc&) {
    return taken;
  }
  std::uint32_t from = 0;
  for (NodeId id = first_; id != kNoNode && taken.size() < count;) {
    // The first slot that starts in this block from `from` on.
    const std::uint32_t slot = slots_.slot_of(std::max(from, nodes_[id].offset) + slot_units - 1);
    const std::uint32_t start = slot * slot_units;
    if (nodes_[id].state != BlockState::free || start >= end_of(id) || !slots_.idle(slot)) {
      id = nodes_[id].next;
      continue;
    }
    from = start + slot_units;
    if (slots_.age(slot) < min_age || !free_run(id, from, clean)) continue;
    id = carve(id, start, slot_units);
    taken.push_back({slot, id});
  }
  return taken;
}

void OffsetAllocator::drop(NodeId taken, bool retire) {
  if (slabs_) forget_slab(slots_.slot_of(nodes_[taken].offset));
  if (retire) {
    set_slots(taken, SlotMap::State::retired);
  } else {
    make_hole(taken);
  }
}

NodeId OffsetAllocator::take_hole(std::uint32_t slots) {
  NodeId best = kNoNode;
  for (NodeId hole = holes_; hole != kNoNode; hole = nodes_[hole].list_next) {
    if (room_of(hole) < slots) continue;
    if (best == kNoNode || nodes_[hole].units < nodes_[best].units) best = hole;
  }
  if (best == kNoNode || !ensure_nodes(2) || !make_room_for_slab()) return kNoNode;
  const NodeId part = cut_hole(best, slots);
  if (table_.cover(nodes_[part].offset, nodes_[part].units)) return part;
  make_hole(part);
  return kNoNode;
}

NodeId OffsetAllocator::take_smallest_hole(std::uint32_t most) {
  NodeId best = kNoNode;
  for (NodeId hole = holes_; hole != kNoNode; hole = nodes_[hole].list_next) {
    if (room_of(hole) != 0 && (best == kNoNode || nodes_[hole].units < nodes_[best].units)) best = hole;
  }
  return best == kNoNode ? kNoNode : take_hole(std::min(most, room_of(best)));
}

NodeId OffsetAllocator::cut_hole(NodeId hole, std::uint32_t slots) {
  const std::uint32_t slot_units = slots_.units_per_slot();
  unlist_hole(hole);
  NodeId part = hole;
  if (slabs_ && nodes_[hole].prev != kNoNode) {
    part = split(hole, slot_units);
    list_hole(hole);
  }
  if (nodes_[part].units > slots * slot_units) list_hole(split(part, slots * slot_units));
  nodes_[part].state = BlockState::busy;
  return part;
}

void OffsetAllocator::make_chunks(NodeId taken) {
  set_slots(taken, SlotMap::State::chunk);
  note_slab(slots_.slot_of(nodes_[taken].offset), nodes_[taken].units / slots_.units_per_slot());
  put_back(taken, true);
}

void OffsetAllocator::make_exact(NodeId taken) {
  set_slots(taken, SlotMap::State::exact);
  nodes_[taken].state = BlockState::exact;
  table_.set(nodes_[taken].offset, BlockTable::entry_of(taken, 0));
}

void OffsetAllocator::take_exact(NodeId exact) {
  table_.set(nodes_[exact].offset, 0);
  nodes_[exact].state = BlockState::busy;
}

void OffsetAllocator::set_slots(NodeId id, SlotMap::State state) {
  const std::uint32_t first = slots_.slot_of(nodes_[id].offset);
  const std::uint32_t last = slots_.slot_of(end_of(id) - 1);
  for (std::uint32_t slot = first; slot <= last; ++slot)
    slots_.set_state(slot, state);
}

void OffsetAllocator::make_hole(NodeId id) {
  set_slots(id, SlotMap::State::hole);
  nodes_[id].state = BlockState::hole;
  nodes_[id].tag = kClean;
  nodes_[id].epoch = 0;
  const auto is_hole = [this](NodeId other) {
    return other != kNoNode && nodes_[other].state == BlockState::hole;
  };
  if (const NodeId left = nodes_[id].prev; is_hole(left)) {
    unlist_hole(left);
    join(left, id);
    id = left;
  }
  if (const NodeId right = nodes_[id].next; is_hole(right)) {
    unlist_hole(right);
    join(id, right);
  }
  list_hole(id);
}

void OffsetAllocator::list_hole(NodeId id) {
  BlockNode& node = nodes_[id];
  node.state = BlockState::hole;
  node.list_prev = kNoNode;
  node.list_next = holes_;
  if (holes_ != kNoNode) nodes_[holes_].list_prev = id;
  holes_ = id;
}

void OffsetAllocator::unlist_hole(NodeId id) {
  const BlockNode& node = nodes_[id];
  if (node.list_prev != kNoNode) {
    nodes_[node.list_prev].list_next = node.list_next;
  } else {
    holes_ = node.list_next;
  }
  if (node.list_next != kNoNode) nodes_[node.list_next].list_prev = node.list_prev;
}

}  // namespace apportion
