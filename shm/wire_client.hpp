// Messages a client (or the CLI) sends to the broker.
//
// Promises: what these structs say is a claim of the sender; who it is comes from the kernel (shm/peer.hpp).
// Never: carry fds. F25: fds beside any of these are closed and the sender is refused.
#pragma once

#include "shm/wire_header.hpp"

namespace apportion::wire {

// First message on a connection that wants a session. Answer: WELCOME or REFUSED.
struct Hello {
  static constexpr Type kType = Type::hello;
  static constexpr std::uint32_t kReclaimable = 1;  // it gives memory back when asked
  Header header;
  Text<64> job;    // job name, at most 63 bytes; empty: jobs.default
  Text<64> label;  // command name or the client's own label, for people
  Token token;     // of the session to re-attach to; none: a new one
  LayoutVersions layouts;
  std::uint32_t flags = 0;
  std::uint32_t reserved = 0;
};
static_assert(sizeof(Hello) == 200);

// What a re-attaching client says it holds, in parts. No answer before the last part.
struct Leases {
  static constexpr Type kType = Type::leases;
  Header header;
  Part part;
  std::array<ChunkEntry, kMaxLeases> entries{};
};
static_assert(sizeof(Leases) == 3888);

// Asks for memory. Answer: GRANT (in parts), or REFUSAL.
struct Request {
  static constexpr Type kType = Type::request;
  static constexpr std::uint32_t kExact =
      1;  // one handle of exactly want_bytes (rounded up to the granularity)
  static constexpr std::uint32_t kMayWait = 2;  // a burst may wait; a guaranteed request waits in any case
  // Ahead of need: from what is free now or not at all. Nobody is asked to give back for it, and a refusal of
  // it is nobody's trouble.
  static constexpr std::uint32_t kAhead = 4;
  Header header;
  std::uint64_t min_bytes = 0;   // below this nothing is taken; at most want_bytes
  std::uint64_t want_bytes = 0;  // more than 0
  std::uint32_t flags = 0;
  std::uint32_t reserved = 0;
};
static_assert(sizeof(Request) == 56);

// The chunks of one GRANT message are imported: OFFERED becomes HELD. No answer.
struct GrantAck {
  static constexpr Type kType = Type::grant_ack;
  Header header;
  Part part;
  std::array<std::uint64_t, kMaxGrantChunks> ids{};
};
static_assert(sizeof(GrantAck) == 1072);

// These chunks of a GRANT could not be taken; the client holds nothing of them. No answer.
struct GrantNack {
  static constexpr Type kType = Type::grant_nack;
  Header header;
  Part part;
  std::uint32_t reason = 0;  // Errc
  std::uint32_t reserved = 0;
  std::array<std::uint64_t, kMaxGrantChunks> ids{};
};
static_assert(sizeof(GrantNack) == 1080);

// These chunks are unmapped, released and closed here. Answer after the last part: RELEASED.
struct Release {
  static constexpr Type kType = Type::release;
  Header header;
  Part part;
  std::array<std::uint64_t, kMaxIds> ids{};
};
static_assert(sizeof(Release) == 3888);

// Answer to RECLAIM: what was given back for it, by RELEASEs before this message, and that no more comes for
// it by itself. No answer.
struct Reclaimed {
  static constexpr Type kType = Type::reclaimed;
  Header header;
  std::uint64_t bytes = 0;
  std::uint32_t code =
      0;  // 0: all that was asked for, or all that is idle; else 1 + Errc: why the rest is not
  std::uint32_t reserved = 0;
};
static_assert(sizeof(Reclaimed) == 48);

// Ends the session; everything it held is given back. Answer: DETACHED.
struct Detach {
  static constexpr Type kType = Type::detach;
  Header header;
};
static_assert(sizeof(Detach) == 32);

// Needs no session. Answer: STATUS_* messages, the last with kLast.
struct StatusRequest {
  static constexpr Type kType = Type::status_request;
  static constexpr std::uint32_t kJobs = 1, kSessions = 2, kHolders = 4, kAll = 7;
  Header header;
  std::uint32_t what = kAll;  // which rows beside the broker's own
  std::uint32_t reserved = 0;
};
static_assert(sizeof(StatusRequest) == 40);

}  // namespace apportion::wire
