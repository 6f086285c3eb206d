// Messages between the broker and its helper, over their private socket pair.
//
// SCRUB{ids}+fds asks for these chunks to be overwritten with zeros; SCRUBBED under its request_id says that
// all of them were, and that the helper holds nothing of them any more, or why not: then none of them counts
// as overwritten. Promises: one SCRUB is answered before the next is sent. Never: seen by a client; decode()
// refuses them from there.
#pragma once

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

}  // namespace apportion::wire
