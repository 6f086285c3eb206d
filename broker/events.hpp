// Everything that can happen to the broker, as plain values (in a namespace of their own:
// the wire has its own Request). The shell (server, watch, pool, keeper link)
// makes them from messages, pidfds, driver results and timers, and hands them to Core::handle one at a time.
//
// Promises: an event says what was seen, never what to do about it. What a client says about itself is not in
// here: uid, gids, pid and start time come from the kernel.
// Never: holds an fd, a driver handle or a pointer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "broker/ids.hpp"
#include "shm/bytes.hpp"
#include "shm/pid_namespace.hpp"

namespace apportion {

namespace events {

// The process at the other end, by the kernel's word (SO_PEERCRED, SO_PEERGROUPS, /proc start time).
struct PeerIdentity {
  std::uint32_t uid = 0;
  std::vector<std::uint32_t> gids;
  std::int32_t pid = 0;
  std::uint64_t start_time = 0;  // clock ticks since boot, 0 where unknown
  // Whether its PID namespace is the broker's: a cudaIpc handle opens in no other (contract rule 33).
  PidNamespace pid_namespace = PidNamespace::unknown;
};

// A HELLO arrived on a connection. Answered by Welcome or RefuseHello.
struct SessionWanted {
  ConnectionId connection;
  std::string job;  // empty: "default"
  PeerIdentity peer;
  bool reclaimable = false;
  std::string label;        // what the client calls itself: for status and logs only
  bool knows_slabs = true;  // its protocol is 1.1 or newer
  Token fresh;              // drawn by the shell; becomes the session's token if a new session is made
  // Re-attach: the token it got earlier and every chunk it says it still holds (the shell gathers the parts).
  std::optional<Token> resume;
  std::vector<ChunkId> claimed;
  std::uint64_t claimed_epoch = 0;
};

// Memory wanted. Answered by SendGrant (perhaps after chunks were made for it) or SendRefusal.
struct Request {
  SessionId session;
  RequestId request;
  Bytes min;              // below this nothing is taken
  Bytes want;             // at least min; both are rounded up
  bool exact = false;     // one chunk of exactly this size (rounded to the granularity): min == want
  bool may_wait = false;  // a burst that may wait (waiting is built later: today it is refused at once)
  bool ahead = false;  // nobody needs it yet: from what is there or not at all, and a refusal is no trouble
};

// The client mapped these chunks of a grant; with no ids, all of it.
struct Acked {
  SessionId session;
  RequestId request;
  std::vector<ChunkId> ids;
};

// The client could not take these chunks and has closed what came (F26); with no ids, all of the grant.
struct Nacked {
  SessionId session;
  RequestId request;
  std::vector<ChunkId> ids;
};

// The shell could not export or send these chunks (F33): the client never saw them.
struct GrantUnsent {
  SessionId session;
  RequestId request;
  std::vector<ChunkId> ids;
  std::string why;
};

// The client has unmapped, released and closed these. Answered by SendReleased.
struct Released {
  SessionId session;
  RequestId request;
  std::vector<ChunkId> ids;
};

// The client has given back, by Released, what it can of what RECLAIM asked for.
struct Reclaimed {
  SessionId session;
  RequestId reclaim;
};

// A clean goodbye: the client says that it holds nothing any more.
struct Detached {
  SessionId session;
};

// The connection ended. A suspicion, never a proof of death (F05): everything stays charged.
struct HungUp {
  SessionId session;
};

// The pidfd fired: the process is gone. The GPU may still write and a forked child may hold the memory.
struct ProcessGone {
  SessionId session;
  SteadyNs now = {};
};

// The driver made the chunk (and the shell can export it), or the helper the slab.
struct ChunkMade {
  ChunkId id;
  SteadyNs now;
};
struct MakeFailed {
  ChunkId id;
  bool device_full = false;  // the driver's code was "out of memory"
  std::string why;
  SteadyNs now;
};
// The broker's own handle is released, or the helper has freed the slab. Not yet proof that the device has
// the room.
struct ChunkUnmade {
  ChunkId id;
  SteadyNs now;
};
struct UnmakeFailed {
  ChunkId id;
  std::string why;
  SteadyNs now;
};

// The helper has overwritten these chunks and let go of them.
struct Scrubbed {
  std::vector<ChunkId> ids;
};
// These are not overwritten, or nobody knows. `why`: what the helper said, or how it ended.
struct ScrubFailed {
  std::vector<ChunkId> ids;
  std::string why;
  SteadyNs now;
  enum class How : std::uint8_t {
    untried,  // no helper, or one without a context: nothing has touched them, and none is to blame
    refused,  // these could not be; of several at least one is to blame. Nobody else has them
    lost,     // a helper ended with them: it may have them yet, and its GPU work may not be over (F52)
  } how = How::untried;
};

// The helper that had these slabs, or may have had, is gone (F52). Said once for each; nothing else is said
// of what was being done with them.
struct SlabsLost {
  std::vector<ChunkId> ids;
  std::string why;
  SteadyNs now;
};

// The keeper has taken (put) or dropped (del) the fds of these chunks.
struct KeeperAcked {
  enum class What : std::uint8_t { put, del } what = What::put;
  std::vector<ChunkId> ids;
};

// A reading of the device (NVML). Also wanted about once a second at rest: what others use then is the
// baseline that deaths are measured against (graveyard.hpp). read_at is the time just BEFORE the reading was
// taken.
struct DeviceRoom {
  Bytes free;
  Bytes total;
  // Bytes of processes other than the broker: contexts, libraries, strangers. Unknown in some containers.
  std::optional<Bytes> foreign;
  SteadyNs read_at;
  Bytes clients = {};  // of `foreign`, what is our clients' own: contexts and libraries, which is overhead
  // Of `foreign`, all of the helper's: its context and the slabs. It is part of `clients`.
  Bytes helper_bytes = {};
  std::vector<std::int32_t> pids = {};  // of the processes that the device names
  bool names_all = false;               // the helper is among them: who is not named has nothing there
  bool helper = false;  // the broker's helper runs: its context is in what is used, and goes when it likes
};

// Time passed. Wanted a few times a second while Core::wants_tick(), at once after anything that may matter.
struct Tick {
  SteadyNs now;
};

}  // namespace events

using Event = std::variant<events::SessionWanted, events::Request, events::Acked, events::Nacked,
                           events::GrantUnsent, events::Released, events::Reclaimed, events::Detached,
                           events::HungUp, events::ProcessGone, events::ChunkMade, events::MakeFailed,
                           events::ChunkUnmade, events::UnmakeFailed, events::Scrubbed, events::ScrubFailed,
                           events::SlabsLost, events::KeeperAcked, events::DeviceRoom, events::Tick>;

}  // namespace apportion
