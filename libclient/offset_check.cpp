// OffsetAllocator::check: every rule its state must obey, for tests and for a graded self-check.
#include "libclient/offset_allocator.hpp"

namespace apportion {

namespace {
std::string at(const char* what, NodeId id) {
  return std::string(what) + " (node " + std::to_string(id) + ")";
}
}  // namespace

std::string OffsetAllocator::check() const {
  if (std::string broken = check_order(); !broken.empty()) return broken;
  if (std::string broken = check_slabs(); !broken.empty()) return broken;
  return check_lists();
}

// The nodes in address order: they tile the range, agree with the slots and the table, and are joined.
std::string OffsetAllocator::check_order() const {
  std::vector<std::uint32_t> live_in_slot(slots_.slots(), 0);
  std::uint64_t live = 0;
  std::uint64_t free = 0;
  std::uint64_t starts = 0;
  std::uint32_t count = 0;
  std::uint32_t offset = 0;
  NodeId previous = kNoNode;
  for (NodeId id = first_; id != kNoNode; previous = id, id = nodes_[id].next) {
    const BlockNode& node = nodes_[id];
    if (++count >= nodes_.size()) return at("the address order has a cycle", id);
    if (node.offset != offset || node.units == 0) return at("blocks do not tile the range", id);
    if (node.prev != previous) return at("a back link is wrong", id);
    offset += node.units;

    const std::uint32_t first_slot = slots_.slot_of(node.offset);
    const std::uint32_t last_slot = slots_.slot_of(end_of(id) - 1);
    const bool whole_slots =
        node.offset % slots_.units_per_slot() == 0 && node.units % slots_.units_per_slot() == 0;
    for (std::uint32_t slot = first_slot; slot <= last_slot; ++slot) {
      const SlotMap::State state = slots_.state(slot);
      const bool fits = node.state == BlockState::hole    ? state == SlotMap::State::hole
                        : node.state == BlockState::exact ? state == SlotMap::State::exact
                        : node.state == BlockState::busy  ? true
                                                          : state == SlotMap::State::chunk;
      if (!fits) return at("a slot's state does not fit its block", id);
      const bool kept = node.state == BlockState::free && is_pool(node.tag);
      if (node.state == BlockState::live || kept) ++live_in_slot[slot];
    }
    switch (node.state) {
      case BlockState::unused:
        return at("an unused node is in the address order", id);
      case BlockState::hole:
        if (!whole_slots) return at("a hole is not whole slots", id);
        if (previous != kNoNode && nodes_[previous].state == BlockState::hole)
          return at("two holes touch", id);
        break;
      case BlockState::free:
        free += node.units;
        if ((node.tag == kClean) != (node.epoch == 0)) return at("a clean block has an epoch", id);
        if (previous != kNoNode && nodes_[previous].state == BlockState::free &&
            nodes_[previous].tag == node.tag) {
          return at("two free blocks of one stream touch", id);
        }
        break;
      case BlockState::live:
        live += node.units;
        ++starts;
        if (BlockTable::node_of(table_.get(node.offset)) != id)
          return at("a live block is not in the table", id);
        break;
      case BlockState::exact:
        ++starts;
        if (!whole_slots || BlockTable::node_of(table_.get(node.offset)) != id)
          return at("an exact block is misplaced", id);
        break;
      case BlockState::busy:
        break;
    }
  }
  if (offset != units_) return "blocks do not tile the range to its end";
  if (live != live_units_ || free != free_units()) return "live or free units are miscounted";
  if (table_.count().blocks != starts) return "the table names a block that is not live";
  std::uint32_t mapped = 0;
  std::uint32_t idle = 0;
  for (std::uint32_t slot = 0; slot < slots_.slots(); ++slot) {
    if (slots_.live(slot) != live_in_slot[slot])
      return "live blocks of slot " + std::to_string(slot) + " miscounted";
    mapped += slots_.state(slot) == SlotMap::State::chunk ? 1U : 0U;
    idle += slots_.idle(slot) ? 1U : 0U;
  }
  if (mapped != slots_.mapped() || idle != slots_.idle()) return "mapped or idle slots are miscounted";
  if (count + unused_count_ + 1 != nodes_.size()) return "a node is lost";
  return {};
}

// The lists: every free block is in the bin of its tag and size, every hole in the list of holes, and nothing
// else.
std::string OffsetAllocator::check_lists() const {
  std::uint64_t listed = 0;
  for (std::uint32_t tag = 0; tag < kTags; ++tag) {
    if (sets_[tag] == nullptr) continue;
    const std::uint64_t before = listed;
    for (std::uint32_t bin = sets_[tag]->next_from(0); bin != BinSet::kNoBin;
         bin = sets_[tag]->next_from(bin + 1)) {
      NodeId previous = kNoNode;
      for (NodeId id = sets_[tag]->head(bin); id != kNoNode; previous = id, id = nodes_[id].list_next) {
        const BlockNode& node = nodes_[id];
        if (node.state != BlockState::free || node.tag != tag || node.bin != bin ||
            bin_of(node.units) != bin) {
          return at("a bin holds a block that is not its own", id);
        }
        if (node.list_prev != previous) return at("a bin's back link is wrong", id);
        listed += node.units;
      }
    }
    if (listed - before != sets_[tag]->units()) return "the free units of a stream are miscounted";
  }
  if (listed != free_units()) return "a free block is in no bin";
  std::uint64_t hole_units = 0;
  for (NodeId id = holes_; id != kNoNode; id = nodes_[id].list_next) {
    if (nodes_[id].state != BlockState::hole) return at("the list of holes holds something else", id);
    hole_units += nodes_[id].units;
  }
  std::uint64_t expected = 0;
  for (NodeId id = first_; id != kNoNode; id = nodes_[id].next) {
    expected += nodes_[id].state == BlockState::hole ? nodes_[id].units : 0U;
  }
  return hole_units == expected ? std::string{} : "a hole is not in the list of holes";
}

}  // namespace apportion
