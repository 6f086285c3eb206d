// The client's arena: device memory as blocks, out of chunks that a ChunkSource maps into two address ranges.
//
// Promises: while there is room, allocate and deallocate are O(1), and make no driver call, no system call,
// no message and no host allocation. Blocks up to 32 KiB mostly pass through the calling thread's magazines
// without a lock; others take one short lock. A block may span chunks. Any chunk without a live
// block can be given back or mapped elsewhere: growth moves idle chunks before it asks for new ones. Streams:
// a block freed on stream S is reused on S at once, on another stream only after the GPU has passed the free.
// That is waited for on the slow path: when only such a block would fit, before growth, by one event for all
// that S freed so far, or where S cannot be asked, by a synchronise of the context. The free
// must be ordered on S after the block's last use, wherever that was. Never: holds the short lock across a
// call of the source; reads or writes device memory.
//
// With slabs (ArenaRanges::slabs) nothing is moved, and only whole slabs without a live block are given back:
// when the broker has no more, before it is asked again.
//
// Thread-safe. From a signal handler that interrupted the arena itself: Errc::busy, never a deadlock (F48).
// deallocate works after any failure of the source.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "libclient/arena_ranges.hpp"
#include "libclient/arena_stats.hpp"
#include "libclient/chunk_source.hpp"
#include "libclient/magazines.hpp"
#include "libclient/offset_allocator.hpp"
#include "libclient/short_lock.hpp"
#include "libclient/slow_lock.hpp"

namespace apportion {

class Arena {
 public:
  // `source` outlives the arena. Nothing is mapped yet.
  Arena(const ArenaRanges& ranges, ChunkSource& source);

  // A block of at least `bytes`, aligned to 512, that work on `stream` may use. Errors: invalid (0 bytes);
  // out_of_memory (larger than the range, no address room, no host memory); busy; what the source said.
  [[nodiscard]] Result<Address> allocate(Bytes bytes, Stream stream);
  // The same where there is room; 0 for every reason not to, without a word. Never reaches the source.
  [[nodiscard]] Address try_allocate(Bytes bytes, Stream stream) noexcept;
  // A block with a driver handle of its own, rounded up to the granularity. Always reaches the source.
  [[nodiscard]] Result<Address> allocate_exact(Bytes bytes);

  // Frees a block. 0 does nothing. Errors: invalid (no live block starts there: freed twice, or never ours);
  // busy. Exact blocks go back to the source at once, with its errors; after one the block is live still, or
  // lost.
  Status deallocate(Address block, Stream stream);

  // The same for a block that is not exact; false for every reason not to, without a word. Never reaches the
  // source.
  [[nodiscard]] bool try_deallocate(Address block, Stream stream) noexcept;

  // Before `stream` is destroyed: its handle may come back as another stream, which must not inherit its
  // frees. Waits while another thread has the driver wait for streams: after an OK nobody asks this one any
  // more. Error: busy.
  Status stream_gone(Stream stream);

  // Graphs: arena_graph.cpp. Before the capture of `stream` begins: blocks allocated or freed on it are the
  // pool's from here on, and stay for its graphs until the pool is released. pool 0: a new one; else one of
  // earlier captures, whose free blocks may be used again. Nothing is synchronised while a pool is bound, nor
  // is this stream asked: a wait that another thread has begun is waited for first.
  // Errors: invalid (the default streams, a stream that is bound, no such pool); busy (the pool is bound; as
  // many pools and streams as there are tags; a thread could not be waited for); out_of_memory.
  [[nodiscard]] Result<std::uint64_t> graph_pool_begin(Stream stream, std::uint64_t pool);
  // The capture has ended. Error: invalid (no such capture).
  Status graph_pool_end(Stream stream);
  // Its graphs are gone, or will never run again. What they used waits for a synchronise. Errors: invalid (no
  // such pool); busy (a capture is bound to it).
  Status graph_pool_release(std::uint64_t pool);

  // Maps chunks until at least `bytes` are mapped, live blocks and all: what is allocated up to that needs no
  // lease any more. They stay until trim_to. Errors: out_of_memory (larger than the range); what the source
  // said; nothing has changed then.
  [[nodiscard]] Status reserve(Bytes bytes);

  // Gives back chunks without a live block, wherever they lie, until no more than `mapped` is mapped; with 0,
  // all of them. Returns what was given back.
  [[nodiscard]] Result<Bytes> trim_to(Bytes mapped);
  // The same for somebody else who needs `bytes`. What was reserved stays, unless reserved_too.
  struct Given {
    Bytes bytes;                 // this much was given back,
    std::optional<Error> error;  // and why not more, where it is not that nothing more was idle
  };
  // How it waits for the GPU's work on what goes.
  enum class Quiesce : std::uint8_t {
    synchronize,  // a synchronise of the context: everything that is idle can go
    // Events alone, for a thread that the program knows nothing of: a synchronise would spoil a capture that
    // the arena was not told of. What was freed on streams that are gone or cannot be asked stays; and
    // everything does while a pool is bound, or where the program has shown a context of its own (busy).
    events
  };
  [[nodiscard]] Given give(Bytes bytes, bool reserved_too, Quiesce how);

  // Returns when the GPU has done all that it was given. Errors: busy (a stream is captured; nothing was
  // asked of the GPU); what the source said.
  Status wait_for_all();

  // Idle chunks that nobody asks for. due(): a chunk has become idle, or a thread keeps blocks, and no sweep
  // is to come that would look at it; take_due() promises one. sweep() empties the magazines of threads that
  // have done nothing since the last one, and gives back the chunks that were idle at kRipe sweeps in a row,
  // as give() does by events and down to what was reserved. Whether another one could find something.
  static constexpr std::uint8_t kRipe = 3;
  [[nodiscard]] bool due() const noexcept { return due_.load(std::memory_order_relaxed); }
  [[nodiscard]] bool take_due() noexcept { return due_.exchange(false); }
  [[nodiscard]] bool sweep();

  // Slabs whose memory is gone, as the source says: nothing is allocated from them from here on, their live
  // blocks can be freed, and those without one are let go of. The bytes of blocks that are live there.
  // Errors: busy; what the source said; then it is to be called again.
  [[nodiscard]] Result<Bytes> settle_lost();

  // What deallocate answers where no live block starts.
  [[nodiscard]] static Error not_live(Address block);
  // The size of the live block that starts at `block`.
  [[nodiscard]] Result<Bytes> size_of(Address block);
  // The largest free block is the largest of the first `look` of the largest sizes: at most 3.2 % too small.
  [[nodiscard]] Result<ArenaStats> stats(std::uint32_t look = ~0U);
  // Every invariant, in words. Slow: walks all blocks.
  [[nodiscard]] Status check();
  // Whether this thread is inside a call of the arena: then a signal handler asks. Async-signal-safe.
  [[nodiscard]] bool interrupted() const noexcept {
    return holds_a_lock() || slow_.held_by_this_thread() || magazines_.inside();
  }

 private:
  [[nodiscard]] static Error arena_busy();
  // F48: asked before slow_, asks_ or claims_ is waited for: whose holder may wait for what this thread
  // holds.
  [[nodiscard]] bool holds_a_lock() const noexcept {
    return lock_.held_by_this_thread() || asks_.held_by_this_thread() || claims_.held_by_this_thread();
  }

  struct Range {
    Address base;
    std::uint64_t bytes;
    OffsetAllocator blocks;
  };
  // Idle chunks out of reach of allocate, and where they are mapped.
  struct Taken {
    struct Node {
      OffsetAllocator* blocks;
      NodeId id;
    };
    std::vector<Node> nodes;
    std::vector<Address> addresses;
  };

  enum class Freed : std::uint8_t { yes, exact, not_live, busy };
  [[nodiscard]] Freed free_block(Address block, Stream stream) noexcept;

  [[nodiscard]] Range& range_for(Bytes bytes) {
    return slabs_ || bytes.value <= ArenaRanges::kSmallBlock ? small_ : large_;
  }
  [[nodiscard]] Range* range_of(Address address);
  [[nodiscard]] Address slot_address(const Range& range, std::uint32_t slot) const {
    return range.base + slot * chunk_.value;
  }
  // Small blocks: arena_small.cpp. `stream` is canonical.
  class Own;
  [[nodiscard]] Address pop(std::uint32_t units, Stream stream) noexcept;
  [[nodiscard]] Address refill(std::uint32_t units, Stream stream) noexcept;
  [[nodiscard]] bool push(std::uint32_t unit, Stream stream) noexcept;
  [[nodiscard]] bool push_slow(std::uint32_t unit, BlockTable::Entry entry, Stream stream) noexcept;
  // All threads' blocks go back to the range, or those freed on a stream that is going. Takes claims_ and the
  // short lock. busy: a handler inside either.
  // asleep: only of threads that have done nothing since the last call with it; then whether others keep
  // some.
  Status empty_magazines(std::optional<Stream> gone);
  [[nodiscard]] bool empty_sleepers();
  void empty(ThreadMagazines& thread, std::optional<Stream> gone) noexcept;
  [[nodiscard]] bool magazines_keep(std::uint32_t units) const noexcept;
  // Claims threads' magazines, so that they stay as they are. With claims_.
  [[nodiscard]] std::uint64_t claim_magazines(bool empty_too, std::uint64_t& missed) noexcept;
  void unclaim_magazines(std::uint64_t claimed) noexcept;
  // The same for all, also of threads that come meanwhile: until unclaimed, those do without.
  [[nodiscard]] std::uint64_t claim_all_magazines(std::uint64_t& missed) noexcept;
  void unclaim_all_magazines(std::uint64_t claimed) noexcept;
  [[nodiscard]] std::string check_magazines() const;
  [[nodiscard]] std::string check_ranges() const;
  // Of a magazine that is the caller's, with the short lock held.
  [[nodiscard]] Magazine* magazine_for(ThreadMagazines& mine, Stream stream) noexcept;
  void flush(ThreadMagazines& mine, Magazine& magazine, std::uint32_t units, std::uint32_t many,
             Tag tag) noexcept;
  void flush_all(ThreadMagazines& mine, Magazine& magazine) noexcept;
  void flush_all_as(ThreadMagazines& mine, Magazine& magazine, Tag tag) noexcept;
  void keep(ThreadMagazines& mine, Magazine& magazine, std::uint32_t units, std::uint32_t unit) noexcept;
  void publish(ThreadMagazines& mine) noexcept;

  [[nodiscard]] Tag find_pool(std::uint64_t pool) const;

  // With the short lock held.
  [[nodiscard]] std::uint64_t units_in_use() const {
    const std::uint64_t all = small_.blocks.live_units() + large_.blocks.live_units() + exact_units_;
    return all > kept_units_ ? all - kept_units_
                             : 0;  // what is published can be what others have freed since
  }
  [[nodiscard]] Address take(Range& range, std::uint32_t units, Stream stream) noexcept;
  // The same; where nothing fits, also what fits once the stream's blocks are joined with clean neighbours.
  [[nodiscard]] Address take_joined(Range& range, std::uint32_t units, Stream stream) noexcept;
  void note_allocated(std::uint64_t units) noexcept {
    ++counts_.num_allocs;
    ++counts_.live_blocks;
    largest_units_ = std::max(largest_units_, units);
    note_peak();
  }
  void note_peak() noexcept { peak_units_ = std::max(peak_units_, units_in_use()); }
  void note_mapped();
  void note_idle() noexcept;  // where no sweep is to come
  [[nodiscard]] Bytes mapped() const;

  // With the slow lock held.
  [[nodiscard]] Result<Address> allocate_slow(Range& range, std::uint32_t units, Stream stream);
  [[nodiscard]] Result<Address> grow(Range& range, std::uint32_t units, Stream stream);
  [[nodiscard]] Status synchronize(Stream stream);
  // Makes what other streams freed clean, as far as it could help: by events, else by a synchronise.
  [[nodiscard]] Address settle_and_take(Range& range, std::uint32_t units, Stream stream);
  [[nodiscard]] bool wait_for(std::uint64_t tags);
  void release_tags();  // only while nothing is taken aside
  // With both locks. Of slabs at least `limit` slots, but never more than `most`.
  [[nodiscard]] Taken take_idle(std::uint32_t limit, bool clean, std::uint8_t min_age, std::uint32_t most);
  void lose(Address slab);
  [[nodiscard]] Bytes lost_live() const;
  [[nodiscard]] Taken take_lost();
  [[nodiscard]] bool make_room(const Error& refused, Bytes needed);
  // arena_close_up.cpp: whether holes have joined.
  [[nodiscard]] bool close_up(Range& range, Stream stream);
  // Slots of a hole; the range is closed up where no hole is that large. Error: out_of_memory.
  struct Run {
    NodeId node = kNoNode;
    Address address = 0;
  };
  [[nodiscard]] Result<Run> take_hole(Range& range, std::uint32_t slots);
  // floor: what slabs, which go whole, must leave mapped.
  [[nodiscard]] Given give_back(Bytes target, Quiesce how, std::uint8_t min_age = 0, Bytes floor = {});
  [[nodiscard]] Given let_go(const Taken& taken, Quiesce how);
  [[nodiscard]] Status settle_by_events();
  [[nodiscard]] Status free_exact(Address block);

  ChunkSource& source_;
  const bool slabs_;
  const Bytes chunk_;
  const Bytes granularity_;
  const std::uint32_t growth_chunks_;

  // In this order: slow_, asks_, claims_, then the short lock.
  SlowLock slow_;
  SlowLock asks_;        // who has the driver wait for streams: none of them goes or is captured meanwhile
  SlowLock claims_;      // who claims magazines; not held across a call of the source
  Magazines magazines_;  // each its thread's, or claimed
  ShortLock lock_;       // everything below
  Range small_;
  Range large_;
  StreamTags tags_;
  Tag lost_ = kClean;                              // with slabs: of what lies in slabs whose memory is gone
  std::array<std::uint64_t, kTags> pool_names_{};  // of graph pools, by tag
  std::uint64_t last_pool_ = 0;
  std::uint32_t epoch_ = 1;  // of the frees that happen now
  struct Exact {
    Bytes size;
    bool gone = false;
  };
  std::map<Address, Exact> exact_;  // exact blocks, also one that is being made
  std::uint64_t exact_units_ = 0;
  std::uint64_t peak_units_ = 0;     // in use
  std::uint64_t largest_units_ = 0;  // of an allocation
  Bytes reserved_;                   // by reserve: so much stays mapped
  std::uint64_t kept_units_ = 0;     // by magazines, as published
  ArenaStats counts_;                // of calls that magazines did not serve
  bool sweeping_ = false;            // a sweep is to come
  bool assigned_ = false;            // a thread\'s magazine to a stream, since the last sweep
  std::atomic<bool> due_{false};
};

}  // namespace apportion
