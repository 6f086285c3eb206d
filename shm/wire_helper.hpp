// Messages between the broker and its helper, over their private socket pair.
//
// SCRUB{ids}+fds asks for these chunks to be overwritten with zeros; SCRUBBED under its request_id says that
// all of them were, and that the helper holds nothing of them any more, or why not: then none of them counts
// as overwritten.
//
// A slab lives in the helper, under the id that MAKE_SLAB gave it, until FREE_SLAB or the helper's end.
// SCRUB_SLABS overwrites slabs where they are, and is answered by SCRUBBED too. SLAB_FREED after an error:
// the helper still has it.
//
// Promises: each request is answered before the next is sent. Never: seen by a client; decode() refuses these
// from there.
#pragma once

#include "shm/ipc_handle.hpp"
#include "shm/wire_header.hpp"

namespace apportion::wire {

// One fd per entry, in the order of the entries.
struct Scrub {
  static constexpr Type kType = Type::scrub;
  Header header;
  Part part;
  std::array<ChunkEntry, kMaxFds> entries{};
};
static_assert(sizeof(Scrub) == 2096);

struct Scrubbed {
  static constexpr Type kType = Type::scrubbed;
  Header header;
  std::uint32_t code = 0;   // 0: done; else 1 + Errc
  std::uint32_t tried = 0;  // not done: 0 where it has no context, and no chunk is to blame
  Text<512> text;           // why not, one line
};
static_assert(sizeof(Scrubbed) == 552);

struct MakeSlab {
  static constexpr Type kType = Type::make_slab;
  Header header;
  std::uint64_t id = 0;
  std::uint64_t bytes = 0;
};
static_assert(sizeof(MakeSlab) == 48);

struct SlabMade {
  static constexpr Type kType = Type::slab_made;
  Header header;
  std::uint32_t code = 0;   // 0: done; else 1 + Errc, and nothing was taken
  std::uint32_t tried = 0;  // as in Scrubbed
  IpcHandle handle{};
  Text<512> text;
};
static_assert(sizeof(SlabMade) == 616);

struct ScrubSlabs {
  static constexpr Type kType = Type::scrub_slabs;
  Header header;
  Part part;
  std::array<std::uint64_t, kMaxIds> ids{};
};
static_assert(sizeof(ScrubSlabs) == 3888);

struct FreeSlab {
  static constexpr Type kType = Type::free_slab;
  Header header;
  std::uint64_t id = 0;
};
static_assert(sizeof(FreeSlab) == 40);

struct SlabFreed {
  static constexpr Type kType = Type::slab_freed;
  Header header;
  std::uint32_t code = 0;
  std::uint32_t tried = 0;  // as in Scrubbed
  Text<512> text;
};
static_assert(sizeof(SlabFreed) == 552);

}  // namespace apportion::wire
