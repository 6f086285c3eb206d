// Blocks of one address range: two-level bins, good fit, split and join, holes and streams. Offsets only.
//
// Promises: allocate, find_live and release are O(1) in the number of blocks (a block over n slots counts in
// n slots), and allocate host memory only when more blocks are alive than ever before. Neighbouring free
// blocks of one stream are always one block; among several streams a clean one joins only where it is
// smaller, so that a small free takes no large clean block away from other streams, or where absorb is asked
// to. (Once several streams have freed, that rule stays, also when one alone goes on.) Good fit: up to kLook
// entries of the bin that the size falls into are compared for the tightest fit; then the first entry of the
// next bin up, where all fit; and before saying no, the rest of the first bin. Never: a driver call, a
// message, a lock (the arena's lock covers it), an address outside its range.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "libclient/bin_set.hpp"
#include "libclient/block_node.hpp"
#include "libclient/block_table.hpp"
#include "libclient/slot_map.hpp"

namespace apportion {

class OffsetAllocator {
 public:
  static constexpr std::uint32_t kLook = 8;

  // slots x units_per_slot addresses, all a hole. Block starts share a table entry per 2^table_shift units.
  // slabs: what is mapped at one time is one slab, and stays one: a hole is kept between any two, so that no
  // block spans them (offset_slabs.cpp).
  OffsetAllocator(std::uint32_t slots, std::uint32_t units_per_slot, std::uint32_t table_shift,
                  bool slabs = false);

  // --- the fast path

  // A block of `units` that a stream of this tag may use at once (its own or clean); kNoNode where none fits.
  [[nodiscard]] NodeId allocate(std::uint32_t units, Tag tag);
  // The node of the live or exact block that starts at `unit`; kNoNode where none does.
  // Of a block that a magazine has: none.
  [[nodiscard]] NodeId find_live(std::uint32_t unit) const {
    const BlockTable::Entry entry = table_.get(unit);
    const NodeId id = BlockTable::node_of(entry);
    return id != kNoNode && (entry & BlockTable::kKept) == 0 && nodes_[id].offset == unit ? id : kNoNode;
  }
  // Up to `count` live blocks of `units`, for a magazine: what is free in exactly this size, then one run cut
  // in pieces, so that they join again when they are freed. Their offsets; returns how many.
  [[nodiscard]] std::uint32_t allocate_several(std::uint32_t units, Tag tag, std::uint32_t count,
                                               std::uint32_t* offsets);
  // What starts at each offset. Its magazine's owner may use it without the arena's lock.
  [[nodiscard]] BlockTable& table() { return table_; }
  [[nodiscard]] const BlockTable& table() const { return table_; }
  // A live block becomes free for streams of `tag`, for others once `epoch` is settled.
  void release(NodeId live, Tag tag, std::uint32_t epoch);

  // --- streams

  // Joins a stream's free blocks with all clean neighbours, where that could make `units`. Whether there were
  // any. Linear in the number of blocks.
  [[nodiscard]] bool absorb(std::uint32_t units, Tag tag);

  // The tags (a bit each) whose blocks could turn a refusal of `units`, once the GPU has passed their frees.
  [[nodiscard]] std::uint64_t tags_that_could_help(std::uint32_t units, Tag tag) const;
  // The GPU has passed every free of an epoch before `limit` under these tags (a bit each): those become
  // clean.
  void settle(std::uint32_t limit, std::uint64_t tags = ~std::uint64_t{0});
  // --- graph pools: tags whose blocks stay theirs until the pool is released

  // Blocks allocated for it, or freed under it, are the pool's from here on: never another stream's, never
  // joined with what is not the pool's, and their chunks are not idle. False: no host memory.
  [[nodiscard]] bool make_pool(Tag tag);
  [[nodiscard]] bool is_pool(Tag tag) const { return pools_ != 0 && (pools_ >> tag & 1U) != 0; }
  // What is free of it waits for a synchronise from here on; what is live is as any other.
  void release_pool(Tag tag, std::uint32_t epoch);
  [[nodiscard]] std::uint64_t pool_units() const;

  [[nodiscard]] bool carries(Tag tag) const { return sets_[tag] != nullptr && !sets_[tag]->empty(); }

  // --- growth: plan, map outside the lock, then finish

  // Where chunks should be mapped so that `units` fit: the fewest new chunks, next to free blocks that can be
  // used.
  struct Placement {
    NodeId hole = kNoNode;  // busy: the slots to map
    NodeId left = kNoNode;  // busy: free blocks beside it that are part of the plan, if any
    NodeId right = kNoNode;
    std::uint32_t slot = 0;
    std::uint32_t needed = 0;  // slots
    std::uint32_t wanted = 0;  // slots, >= needed
    Tag tag = kClean;          // whom the block is for
  };
  // Takes them aside, so that they are still there when the chunks are mapped. False where no hole is large
  // enough or the host has no memory.
  [[nodiscard]] bool plan(std::uint32_t units, Tag tag, std::uint32_t at_least_slots, Placement& placement);
  // The first `mapped` slots of the plan are chunks now, the next `retired` are lost, the rest is a hole
  // again. Returns the live block of `units` that the plan was for, if what it needed is mapped. passed: the
  // GPU was synchronised since the plan.
  NodeId finish(const Placement& placement, std::uint32_t units, std::uint32_t mapped, std::uint32_t retired,
                bool passed);

  // --- whole slots

  // Takes mapped slots without a live block aside, out of reach of allocate: the first `limit`. With slabs,
  // the slots of whole slabs without a live block, until they are `limit` or more, never more than `most`.
  // clean: only those that the GPU is known to have passed. min_age: only those seen idle so often. None
  // where the host has no memory. Linear in the number of blocks.
  struct TakenSlot {
    std::uint32_t slot;
    NodeId node;
  };
  [[nodiscard]] std::vector<TakenSlot> take_idle(std::uint32_t limit, bool clean, std::uint8_t min_age = 0,
                                                 std::uint32_t most = ~0U);
  // Free again; clean if the GPU was synchronised since it was taken, but for what is lost.
  void put_back(NodeId taken, bool passed);
  // What was taken aside is not mapped any more, or, where that failed, is never used again.
  void drop(NodeId taken, bool retire);
  // `slots` slots of a hole, taken aside for new chunks or a block with a handle of its own; kNoNode where no
  // hole is that large, or the host has no memory.
  [[nodiscard]] NodeId take_hole(std::uint32_t slots);
  // The smallest hole there is, but at most `most` slots of it, taken aside; kNoNode where there is none.
  [[nodiscard]] NodeId take_smallest_hole(std::uint32_t most);
  [[nodiscard]] std::uint32_t slots_in(NodeId taken) const {
    return nodes_[taken].units / slots_.units_per_slot();
  }
  // They are chunks now, and free.
  void make_chunks(NodeId taken);
  // They are a user's block now.
  void make_exact(NodeId taken);
  // That block is taken aside, so that a second free of it finds nothing.
  void take_exact(NodeId exact);

  // --- slabs whose memory is gone

  // What is free of the slab that starts at this slot is nobody's from here on; its live blocks can be freed,
  // and then are nobody's too. `lost` is a graph pool's tag that is never released. Error: no slab starts
  // there. Linear in the number of blocks.
  [[nodiscard]] bool lose_slab(std::uint32_t slot, Tag lost);
  // Live blocks of such slabs. Linear.
  [[nodiscard]] std::uint64_t lost_live_units(Tag lost) const;
  // Takes such slabs without a live block aside, as take_idle. Linear.
  [[nodiscard]] std::vector<TakenSlot> take_lost(Tag lost);

  // --- figures

  [[nodiscard]] const BlockNode& node(NodeId id) const { return nodes_[id]; }
  [[nodiscard]] const SlotMap& slots() const { return slots_; }
  [[nodiscard]] SlotMap& slots() { return slots_; }
  [[nodiscard]] std::uint64_t live_units() const { return live_units_; }
  [[nodiscard]] std::uint64_t free_units() const;
  // What take_idle could take: with slabs, linear in their slots.
  [[nodiscard]] std::uint32_t idle_slots() const { return slabs_ ? idle_slab_slots() : slots_.idle(); }
  // Free units of one tag.
  [[nodiscard]] std::uint64_t free_units(Tag tag) const { return carries(tag) ? sets_[tag]->units() : 0; }
  // Of the free units, those that are not clean.
  [[nodiscard]] std::uint64_t pending_units() const { return free_units() - sets_[kClean]->units(); }
  // The largest of the first `look` blocks of the largest bin: at most 3.2 % below the largest of all.
  [[nodiscard]] std::uint32_t largest_free(std::uint32_t look = ~0U) const;
  // The first rule that does not hold, in words; empty where all do.
  [[nodiscard]] std::string check() const;

 private:
  struct Slab {
    std::uint32_t first;  // slot
    std::uint32_t slots;
  };
  // Slots beside mapped ones, which stay a hole between slabs.
  [[nodiscard]] std::uint32_t guards(NodeId hole) const {
    if (!slabs_) return 0;
    return (nodes_[hole].prev != kNoNode ? 1U : 0U) + (nodes_[hole].next != kNoNode ? 1U : 0U);
  }
  // Slots of a hole that can be mapped.
  [[nodiscard]] std::uint32_t room_of(NodeId hole) const {
    const std::uint32_t slots = nodes_[hole].units / slots_.units_per_slot();
    return slots - std::min(slots, guards(hole));
  }
  // Takes the first `slots` that can be mapped out of a hole, busy. Two nodes at most are split off.
  NodeId cut_hole(NodeId hole, std::uint32_t slots);
  // F31: before the slots are mapped. False: no host memory.
  [[nodiscard]] bool make_room_for_slab();
  void note_slab(std::uint32_t first, std::uint32_t slots);
  void forget_slab(std::uint32_t slot);
  // The slab that holds a slot; null: none does.
  [[nodiscard]] const Slab* slab_of(std::uint32_t slot) const;
  [[nodiscard]] bool is_idle(const Slab& slab, std::uint8_t min_age = 0) const;
  [[nodiscard]] bool is_clean(const Slab& slab, NodeId& id) const;
  [[nodiscard]] std::uint32_t idle_slab_slots() const;
  [[nodiscard]] std::vector<TakenSlot> take_idle_slabs(std::uint32_t limit, bool clean, std::uint8_t min_age,
                                                       std::uint32_t most);
  // All slots of these slabs, by address, which are all free.
  [[nodiscard]] std::vector<TakenSlot> take_slabs(const std::vector<Slab>& slabs);
  [[nodiscard]] std::string check_slabs() const;
  // Whether `count` nodes are there to be taken, beside those that finish() was promised.
  [[nodiscard]] bool ensure_nodes(std::uint32_t count) {
    return unused_count_ >= count + promised_ || more_nodes(count + promised_);
  }
  [[nodiscard]] bool more_nodes(std::uint32_t count);
  [[nodiscard]] bool make_set(Tag tag);
  NodeId new_node();
  void delete_node(NodeId id);
  // The first `units` stay with `id`; the rest becomes a node of the same state, tag and epoch, in no list.
  NodeId split(NodeId id, std::uint32_t units);
  [[nodiscard]] std::uint32_t end_of(NodeId id) const { return nodes_[id].offset + nodes_[id].units; }
  // Whether there is nothing but free blocks, or clean ones, from `id` up to `end`.
  [[nodiscard]] bool free_run(NodeId id, std::uint32_t end, bool clean) const;
  // Takes [first, first + units) of a run of free blocks aside; `id` is the block that holds `first`.
  NodeId carve(NodeId id, std::uint32_t first, std::uint32_t units);
  // Whether two free neighbours become one. A pool would take clean memory away from all others; so would a
  // small block of one stream among several.
  [[nodiscard]] bool joins(const BlockNode& a, const BlockNode& b) const {
    if (a.tag == b.tag) return true;
    if (a.tag != kClean && b.tag != kClean) return false;
    const BlockNode& clean = a.tag == kClean ? a : b;
    const BlockNode& other = a.tag == kClean ? b : a;
    return !is_pool(other.tag) && (!several_streams_ || clean.units <= other.units);
  }
  // `right` follows `left` and goes; neither may be in a list. The tag is the one that is not clean.
  void join(NodeId left, NodeId right);
  void list_free(NodeId id);
  void unlist_free(NodeId id);
  void list_hole(NodeId id);
  void unlist_hole(NodeId id);
  [[nodiscard]] NodeId find_fit(const BinSet& set, std::uint32_t units) const;
  // A free block of `units` for a stream of this tag, in no list any more; kNoNode.
  [[nodiscard]] NodeId take_fit(std::uint32_t units, Tag tag);
  // Whether a bin that holds `units` alone, or next to it, has an entry.
  [[nodiscard]] bool has_size(std::uint32_t units, Tag tag) const {
    const std::uint32_t bin = bin_of(units);
    return sets_[kClean]->head(bin) != kNoNode || (sets_[tag] != nullptr && sets_[tag]->head(bin) != kNoNode);
  }
  // A node in no list becomes a user's, who asked for streams of `tag`.
  void make_live(NodeId id, Tag tag);
  // Makes a node that is in no list free, joined with every free neighbour it can be used together with.
  void make_free(NodeId id);
  void make_hole(NodeId id);
  void set_slots(NodeId id, SlotMap::State state);
  [[nodiscard]] std::string check_order() const;
  [[nodiscard]] std::string check_lists() const;

  std::vector<BlockNode> nodes_;  // [0] is no node
  NodeId unused_ = kNoNode;       // list of nodes that describe nothing, through list_next
  std::uint32_t unused_count_ = 0;
  std::uint32_t promised_ = 0;  // of these, kept for the finish() of a plan: it must not fail (F31)
  NodeId first_ = kNoNode;      // the node at offset 0: split and join keep the left node's id
  NodeId holes_ = kNoNode;
  std::uint32_t units_;
  std::uint64_t pools_ = 0;  // tags that are graph pools
  std::uint32_t stream_sets_ = 0;
  bool several_streams_ = false;
  std::array<std::unique_ptr<BinSet>, kTags> sets_;  // by tag; made on first use
  BlockTable table_;
  const bool slabs_;
  std::vector<Slab> slab_list_;  // with slabs, by address
  std::uint32_t most_small_;     // sizes up to this many units stand in the table; 0: none
  SlotMap slots_;
  std::uint64_t live_units_ = 0;
};

}  // namespace apportion
