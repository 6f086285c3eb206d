// The fast path of OffsetAllocator, inline: allocate and release become part of the arena's own two
// functions, so that a call saves and restores registers once. Included by whoever calls them; never by a
// header.
#pragma once

#include "libclient/offset_allocator.hpp"
#include "shm/result.hpp"

namespace apportion {

// What it holds is what it last held.
inline NodeId OffsetAllocator::new_node() {
  const NodeId id = unused_;
  APPORTION_CHECK(id != kNoNode);
  unused_ = nodes_[id].list_next;
  --unused_count_;
  return id;
}

inline void OffsetAllocator::delete_node(NodeId id) {
  BlockNode& node = nodes_[id];
  node.state = BlockState::unused;
  node.list_next = unused_;
  unused_ = id;
  ++unused_count_;
}

inline NodeId OffsetAllocator::split(NodeId id, std::uint32_t units) {
  const NodeId rest = new_node();
  BlockNode* const nodes = nodes_.data();
  BlockNode& left = nodes[id];
  BlockNode& right = nodes[rest];
  right = left;
  right.offset += units;
  right.units -= units;
  right.prev = id;
  left.units = units;
  left.next = rest;
  if (right.next != kNoNode) nodes[right.next].prev = rest;
  return rest;
}

inline void OffsetAllocator::join(NodeId left, NodeId right) {
  BlockNode* const nodes = nodes_.data();
  BlockNode& l = nodes[left];
  const BlockNode& r = nodes[right];
  l.units += r.units;
  if (l.tag == kClean) l.tag = r.tag;
  l.epoch = newest(l.epoch, r.epoch);
  l.next = r.next;
  if (r.next != kNoNode) nodes[r.next].prev = left;
  delete_node(right);
}

inline void OffsetAllocator::list_free(NodeId id) {
  BlockNode* const nodes = nodes_.data();
  BlockNode& node = nodes[id];
  const std::uint32_t bin = bin_of(node.units);
  const NodeId before = sets_[node.tag]->push(bin, id, node.units);
  if (is_pool(node.tag)) slots_.add_block(node.offset, node.units);  // a graph still uses these chunks
  node.bin = static_cast<std::uint16_t>(bin);
  node.state = BlockState::free;
  node.list_prev = kNoNode;
  node.list_next = before;
  if (before != kNoNode) nodes[before].list_prev = id;
}

inline void OffsetAllocator::unlist_free(NodeId id) {
  BlockNode* const nodes = nodes_.data();
  const BlockNode& node = nodes[id];
  BinSet& set = *sets_[node.tag];
  set.subtract(node.units);
  if (is_pool(node.tag)) slots_.remove_block(node.offset, node.units);
  if (node.list_prev != kNoNode) {
    nodes[node.list_prev].list_next = node.list_next;
  } else {
    set.pop(node.bin, node.list_next);
  }
  if (node.list_next != kNoNode) nodes[node.list_next].list_prev = node.list_prev;
}

inline void OffsetAllocator::make_free(NodeId id) {
  BlockNode* const nodes = nodes_.data();
  const auto meets = [nodes, this](NodeId a, NodeId b) {
    return a != kNoNode && nodes[a].state == BlockState::free && joins(nodes[a], nodes[b]);
  };
  for (;;) {
    const NodeId left = nodes[id].prev;
    const bool to_left = meets(left, id);
    if (to_left) {
      unlist_free(left);
      join(left, id);
      id = left;
    }
    const NodeId right = nodes[id].next;
    const bool to_right = meets(right, id);
    if (to_right) {
      unlist_free(right);
      join(id, right);
    }
    // Among several streams a join can make the next possible: what it made is larger, or another stream's.
    if (!several_streams_ || !(to_left || to_right)) break;
  }
  list_free(id);
}

inline void OffsetAllocator::make_live(NodeId id, Tag tag) {
  BlockNode& node = nodes_[id];
  node.state = BlockState::live;
  node.tag = is_pool(tag) ? tag : kClean;  // a pool's block comes back to it, so no magazine may have it
  const bool small = node.units <= most_small_ && node.tag == kClean;
  table_.set(node.offset, BlockTable::entry_of(id, small ? node.units : 0));
  slots_.add_block(node.offset, node.units);
  live_units_ += node.units;
}

inline NodeId OffsetAllocator::find_fit(const BinSet& set, std::uint32_t units) const {
  const BlockNode* const nodes = nodes_.data();
  const std::uint32_t bin = bin_of(units);
  NodeId best = kNoNode;
  NodeId id = set.head(bin);
  for (std::uint32_t looked = 0; id != kNoNode && looked < kLook; ++looked, id = nodes[id].list_next) {
    if (nodes[id].units == units) return id;
    if (nodes[id].units > units && (best == kNoNode || nodes[id].units < nodes[best].units)) best = id;
  }
  if (best != kNoNode) return best;
  const std::uint32_t above = set.next_from(bin + 1);
  if (above != BinSet::kNoBin) return set.head(above);
  for (; id != kNoNode; id = nodes[id].list_next) {
    if (nodes[id].units >= units) return id;
  }
  return kNoNode;
}

inline NodeId OffsetAllocator::take_fit(std::uint32_t units, Tag tag) {
  NodeId id = kNoNode;
  if (tag != kClean && carries(tag)) id = find_fit(*sets_[tag], units);
  if ((id == kNoNode || nodes_[id].units != units) && !sets_[kClean]->empty()) {
    const NodeId clean = find_fit(*sets_[kClean], units);
    if (clean != kNoNode && (id == kNoNode || nodes_[clean].units < nodes_[id].units)) id = clean;
  }
  if (id == kNoNode || !ensure_nodes(1)) return kNoNode;
  unlist_free(id);
  if (nodes_[id].units > units) list_free(split(id, units));
  return id;
}

inline NodeId OffsetAllocator::allocate(std::uint32_t units, Tag tag) {
  NodeId id = take_fit(units, tag);
  if (id == kNoNode && absorb(units, tag)) id = take_fit(units, tag);
  if (id != kNoNode) make_live(id, tag);
  return id;
}

inline void OffsetAllocator::release(NodeId live, Tag tag, std::uint32_t epoch) {
  BlockNode& node = nodes_[live];
  table_.set(node.offset, 0);
  slots_.remove_block(node.offset, node.units);
  live_units_ -= node.units;
  if (is_pool(node.tag)) tag = node.tag;
  if (sets_[tag] == nullptr && !make_set(tag)) {
    tag = kUnknown;  // F31: no host memory; the block waits for a synchronise
  }
  node.tag = tag;
  node.epoch = tag == kClean ? 0 : epoch;
  make_free(live);
}

}  // namespace apportion
