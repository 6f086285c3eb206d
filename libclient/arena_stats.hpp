// What an arena can say about itself. The first block has the names of JAX's memory_stats().
#pragma once

#include <cstdint>

#include "shm/bytes.hpp"

namespace apportion {

struct ArenaStats {
  std::uint64_t num_allocs = 0;  // allocations that succeeded, ever
  Bytes bytes_in_use;            // live blocks, each rounded up to 512 bytes
  Bytes
      peak_bytes_in_use;  // less by what threads took from their magazines at that moment, 8 MiB each at most
  Bytes largest_alloc_size;
  Bytes largest_free_block_bytes;
  Bytes pool_bytes;  // mapped: chunks and exact blocks
  Bytes peak_pool_bytes;

  std::uint64_t live_blocks = 0;
  Bytes idle_bytes;          // chunks without a block: what trim_to(0) gives back, magazines' blocks aside
  Bytes cached_bytes;        // mapped and in no live block
  Bytes magazine_bytes;      // of these, kept by threads
  Bytes pending_bytes;       // of these, freed on a stream that the GPU is not known to have passed
  Bytes graph_pool_bytes;    // of these, kept for captured graphs
  double fragmentation = 0;  // (free - largest free block) / free, 0 where nothing is free

  // How far calls went: each level should answer 99 % of what reaches it.
  std::uint64_t magazine_hits = 0;  // allocations served by a thread's magazine, without a lock
  std::uint64_t arena_hits = 0;     // allocations served under the short lock
  std::uint64_t arena_misses = 0;   // allocations that took the slow path
  std::uint64_t events = 0;         // recorded, to wait for one stream each
  std::uint64_t synchronizes = 0;
  std::uint64_t growths = 0;  // calls for leases
  std::uint64_t chunks_leased = 0;
  std::uint64_t chunks_moved = 0;
  std::uint64_t chunks_returned = 0;
};

}  // namespace apportion
