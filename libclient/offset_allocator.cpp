#include "libclient/offset_allocator.hpp"

#include <algorithm>
#include <new>

#include "libclient/magazine.hpp"
#include "libclient/offset_inline.hpp"
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
