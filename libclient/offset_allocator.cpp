#include "libclient/offset_allocator.hpp"

#include <algorithm>
#include <new>

#include "libclient/magazine.hpp"
#include "shm/result.hpp"

namespace apportion {

namespace {
constexpr std::uint32_t kFirstNodes = 4096;
}

OffsetAllocator::OffsetAllocator(std::uint32_t slots, std::uint32_t units_per_slot, std::uint32_t table_shift,
                                 bool slabs)
    : units_(slots * units_per_slot),
      table_(units_, table_shift),
      slabs_(slabs),
      most_small_(table_shift == 0 ? Magazine::kMost : 0),
      slots_(slots, units_per_slot) {
  nodes_.resize(1);
  sets_[kClean] = std::make_unique<BinSet>();
  sets_[kUnknown] = std::make_unique<BinSet>();
  APPORTION_CHECK(slots > 0 && ensure_nodes(kFirstNodes));
  first_ = new_node();
  nodes_[first_].units = units_;
  make_hole(first_);
}

// --- nodes and lists, first: allocate and release are flat, all of what follows is inside them

[[gnu::noinline, gnu::cold]] bool OffsetAllocator::more_nodes(std::uint32_t count) {
  const std::size_t old = nodes_.size();
  if (old + count > BlockTable::kMostNodes) return false;
  try {
    nodes_.resize(std::min<std::size_t>(std::max(old * 2, old + count), BlockTable::kMostNodes));
  } catch (const std::bad_alloc&) {
    return false;
  }
  for (std::size_t id = nodes_.size(); id-- > old;)
    delete_node(static_cast<NodeId>(id));
  return true;
}

// What it holds is what it last held.
NodeId OffsetAllocator::new_node() {
  const NodeId id = unused_;
  APPORTION_CHECK(id != kNoNode);
  unused_ = nodes_[id].list_next;
  --unused_count_;
  return id;
}

void OffsetAllocator::delete_node(NodeId id) {
  BlockNode& node = nodes_[id];
  node.state = BlockState::unused;
  node.list_next = unused_;
  unused_ = id;
  ++unused_count_;
}

NodeId OffsetAllocator::split(NodeId id, std::uint32_t units) {
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

void OffsetAllocator::join(NodeId left, NodeId right) {
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

void OffsetAllocator::list_free(NodeId id) {
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

void OffsetAllocator::unlist_free(NodeId id) {
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

void OffsetAllocator::make_free(NodeId id) {
  BlockNode* const nodes = nodes_.data();
  const auto meets = [nodes, this](NodeId a, NodeId b) {
    return a != kNoNode && nodes[a].state == BlockState::free && joins(nodes[a], nodes[b]);
  };
  // Each join can make the next possible: what it made is larger, or of another stream than before.
  for (;;) {
    if (const NodeId left = nodes[id].prev; meets(left, id)) {
      unlist_free(left);
      join(left, id);
      id = left;
    } else if (const NodeId right = nodes[id].next; meets(right, id)) {
      unlist_free(right);
      join(id, right);
    } else {
      break;
    }
  }
  list_free(id);
}

void OffsetAllocator::make_live(NodeId id, Tag tag) {
  BlockNode& node = nodes_[id];
  node.state = BlockState::live;
  node.tag = is_pool(tag) ? tag : kClean;  // a pool's block comes back to it, so no magazine may have it
  const bool small = node.units <= most_small_ && node.tag == kClean;
  table_.set(node.offset, BlockTable::entry_of(id, small ? node.units : 0));
  slots_.add_block(node.offset, node.units);
  live_units_ += node.units;
}

NodeId OffsetAllocator::find_fit(const BinSet& set, std::uint32_t units) const {
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

// --- the fast path

NodeId OffsetAllocator::take_fit(std::uint32_t units, Tag tag) {
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

[[gnu::flatten]] NodeId OffsetAllocator::allocate(std::uint32_t units, Tag tag) {
  NodeId id = take_fit(units, tag);
  if (id == kNoNode && absorb(units, tag)) id = take_fit(units, tag);
  if (id != kNoNode) make_live(id, tag);
  return id;
}

std::uint32_t OffsetAllocator::allocate_several(std::uint32_t units, Tag tag, std::uint32_t count,
                                                std::uint32_t* offsets) {
  std::uint32_t made = 0;
  const auto take = [&](NodeId id) {
    make_live(id, tag);
    offsets[made++] = nodes_[id].offset;
  };
  while (made < count && has_size(units, tag)) {
    const NodeId id = take_fit(units, tag);
    if (id == kNoNode) break;
    take(id);
  }
  if (made == count || !ensure_nodes(1 + count)) return made;
  NodeId run = take_fit(units * (count - made), tag);
  if (run == kNoNode) {
    if (made != 0) return made;
    const NodeId one = allocate(units, tag);
    if (one == kNoNode) return 0;
    offsets[0] = nodes_[one].offset;
    return 1;
  }
  while (nodes_[run].units > units) {
    const NodeId rest = split(run, units);
    take(run);
    run = rest;
  }
  take(run);
  return made;
}

[[gnu::flatten]] void OffsetAllocator::release(NodeId live, Tag tag, std::uint32_t epoch) {
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

[[gnu::noinline, gnu::cold]] bool OffsetAllocator::make_set(Tag tag) {
  sets_[tag].reset(new (std::nothrow) BinSet);
  if (!is_pool(tag)) several_streams_ = ++stream_sets_ > 1;
  return sets_[tag] != nullptr;
}

// --- streams

[[gnu::noinline, gnu::cold]] bool OffsetAllocator::absorb(std::uint32_t units, Tag tag) {
  if (tag == kClean || is_pool(tag) || !carries(tag) || sets_[kClean]->empty()) return false;
  if (sets_[tag]->units() + sets_[kClean]->units() < units) return false;
  const auto usable = [&](NodeId id) {
    return id != kNoNode && nodes_[id].state == BlockState::free &&
           (nodes_[id].tag == tag || nodes_[id].tag == kClean);
  };
  bool any = false;
  for (NodeId id = first_; id != kNoNode; id = nodes_[id].next) {
    if (!usable(id) || !usable(nodes_[id].next)) continue;
    any = true;
    unlist_free(id);
    for (NodeId next = nodes_[id].next; usable(next); next = nodes_[id].next) {
      unlist_free(next);
      join(id, next);
    }
    list_free(id);
  }
  return any;
}

std::uint64_t OffsetAllocator::tags_that_could_help(std::uint32_t units, Tag tag) const {
  std::uint64_t tags = 0;
  if (free_units() < units || pending_units() == 0) return tags;
  for (std::uint32_t other = 1; other < kTags; ++other) {
    const auto one = static_cast<Tag>(other);
    if (one != tag && !is_pool(one) && carries(one)) tags |= std::uint64_t{1} << other;
  }
  return tags;
}

void OffsetAllocator::settle(std::uint32_t limit, std::uint64_t tags) {
  for (std::uint32_t tag = 1; tag < kTags; ++tag) {
    if ((tags >> tag & 1U) == 0 || sets_[tag] == nullptr || is_pool(static_cast<Tag>(tag))) continue;
    const BinSet& set = *sets_[tag];
    for (std::uint32_t bin = set.next_from(0); bin != BinSet::kNoBin; bin = set.next_from(bin + 1)) {
      for (NodeId id = set.head(bin), next = kNoNode; id != kNoNode; id = next) {
        next = nodes_[id].list_next;
        if (!older(nodes_[id].epoch, limit)) continue;
        const std::uint32_t next_units = nodes_[next].units;
        unlist_free(id);
        nodes_[id].tag = kClean;
        nodes_[id].epoch = 0;
        make_free(id);
        // What it joined may have been the next one.
        const bool intact = nodes_[next].state == BlockState::free && nodes_[next].tag == tag &&
                            nodes_[next].units == next_units;
        if (next != kNoNode && !intact) next = set.head(bin);
      }
    }
  }
}

// --- graph pools

bool OffsetAllocator::make_pool(Tag tag) {
  pools_ |= std::uint64_t{1} << tag;
  if (sets_[tag] != nullptr || make_set(tag)) return true;
  pools_ &= ~(std::uint64_t{1} << tag);
  return false;
}

void OffsetAllocator::release_pool(Tag tag, std::uint32_t epoch) {
  BinSet& set = *sets_[tag];
  for (std::uint32_t bin = set.next_from(0); bin != BinSet::kNoBin; bin = set.next_from(bin)) {
    const NodeId id = set.head(bin);
    unlist_free(id);
    nodes_[id].tag = kUnknown;  // graphs ran on whatever streams they were launched on
    nodes_[id].epoch = epoch;
    make_free(id);
  }
  pools_ &= ~(std::uint64_t{1} << tag);
  for (NodeId id = first_; id != kNoNode; id = nodes_[id].next) {
    if (nodes_[id].state == BlockState::live && nodes_[id].tag == tag) nodes_[id].tag = kClean;
  }
}

std::uint64_t OffsetAllocator::pool_units() const {
  std::uint64_t units = 0;
  for (std::uint64_t left = pools_; left != 0; left &= left - 1)
    units += sets_[std::countr_zero(left)]->units();
  return units;
}

// --- figures

std::uint64_t OffsetAllocator::free_units() const {
  std::uint64_t units = 0;
  for (const auto& set : sets_)
    units += set != nullptr ? set->units() : 0;
  return units;
}

std::uint32_t OffsetAllocator::largest_free(std::uint32_t look) const {
  std::uint32_t largest = 0;
  for (std::uint32_t tag = 0; tag < kTags; ++tag) {
    const auto& set = sets_[tag];
    if (set == nullptr || set->empty() || is_pool(static_cast<Tag>(tag))) continue;
    NodeId id = set->head(set->last());
    for (std::uint32_t looked = 0; id != kNoNode && looked < look; ++looked, id = nodes_[id].list_next) {
      largest = std::max(largest, nodes_[id].units);
    }
  }
  return largest;
}

}  // namespace apportion
