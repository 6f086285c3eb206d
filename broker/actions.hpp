// What the shell has to do after an event, in this order. Every change an action depends on is in the journal
// before Core::handle returns, so a crash between two actions over-counts and never under-counts (F12).
//
// Promises: PublishJob of every job whose figures moved comes before the SendGrant that depends on it.
// Never: holds an fd or a driver handle; the shell finds those by chunk id.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "broker/figures.hpp"
#include "broker/ids.hpp"
#include "shm/bytes.hpp"
#include "shm/job_layout.hpp"
#include "shm/result.hpp"

namespace apportion {

namespace actions {

struct Welcome {
  ConnectionId connection;
  SessionId session;
  Token token;
  JobIndex job;
  std::uint64_t epoch = 0;
  bool resumed = false;
  Bytes chunk;
  Bytes told_total;
  Bytes told_free;
};
struct RefuseHello {
  ConnectionId connection;
  Error error;
};

// The worker creates the chunk, then answers ChunkMade or MakeFailed.
struct MakeChunk {
  ChunkId id;
  Bytes bytes;
};
// The worker closes and releases everything it has of the chunk, then answers ChunkUnmade or UnmakeFailed.
struct UnmakeChunk {
  ChunkId id;
  Bytes bytes;
};
// The helper overwrites them; Scrubbed or ScrubFailed comes back for every one, perhaps in several parts.
struct ScrubChunks {
  struct Piece {
    ChunkId id;
    Bytes bytes;
    bool slab = false;
  };
  std::vector<Piece> chunks;  // and slabs
};
// The helper makes the slab, then answers ChunkMade or MakeFailed.
struct MakeSlab {
  ChunkId id;
  Bytes bytes;
};
// Nobody has it open any more: its entry in the job page is cleared, the helper frees it; then ChunkUnmade or
// UnmakeFailed (and it is still there).
struct FreeSlab {
  ChunkId id;
};
// Hand one fd per chunk to the keeper; answer KeeperAcked{put}.
struct KeeperPut {
  std::vector<ChunkId> ids;
};
// The keeper closes its fds; answer KeeperAcked{del}.
struct KeeperDel {
  std::vector<ChunkId> ids;
};

// Export and send, in parts; Acked, Nacked or GrantUnsent come back for every chunk.
// Slabs are put into the job page instead of exported.
struct SendGrant {
  SessionId session;
  RequestId request;
  std::uint64_t epoch = 0;
  Bytes bytes;
  std::vector<ChunkId> ids;
  JobIndex job;
  bool slabs = false;
};
struct SendRefusal {
  SessionId session;
  RequestId request;
  Refusal refusal;
};
struct SendReleased {
  SessionId session;
  RequestId request;
  Bytes bytes;                   // taken back
  std::uint32_t chunks = 0;      // taken back
  std::vector<ChunkId> unknown;  // named, but not held by this session: nothing was done for them
};

// The holder has to hear that these are its no more, and why.
struct SlabsLost {
  SessionId session;
  std::vector<ChunkId> ids;
  std::string why;  // one line: what happened, and what to do
};

// Give back what lies unused; Reclaimed comes when that is done.
struct SendReclaim {
  SessionId session;
  RequestId reclaim;  // unique among all of this broker
  Bytes bytes;
  std::uint64_t deadline_ms = 0;
};

// The session is over: drop its connection, pidfd and queues. why is empty after a clean goodbye.
struct EndSession {
  SessionId session;
  std::string why;
  Bytes bytes;  // given back by the goodbye
};

// Write the job's page now (shm/job_page.hpp).
struct PublishJob {
  JobIndex job;
  JobFigures figures;
};
// The ledger is out of date: publish Core::ledger() when the rate limit next allows.
struct PublishLedger {};

// Read the device and send DeviceRoom. Asked again at each Tick while memory of the dead is awaited.
struct AskDeviceRoom {};

// The pool is there; sessions may come. Sent once (at once with reserve = "leased", and when closed).
struct Ready {};
// The broker cannot do its work (the pool could not be made): print the line and exit.
struct Fatal {
  Error error;
};

struct Log {
  enum class Level : std::uint8_t { info, warning, error } level = Level::info;
  std::string event;  // "granted", "refused", "lost", ...
  std::vector<std::pair<std::string, std::string>> fields;
};

}  // namespace actions

using Action = std::variant<actions::Welcome, actions::RefuseHello, actions::MakeChunk, actions::UnmakeChunk,
                            actions::ScrubChunks, actions::MakeSlab, actions::FreeSlab, actions::SlabsLost,
                            actions::KeeperPut, actions::KeeperDel, actions::SendGrant, actions::SendRefusal,
                            actions::SendReleased, actions::SendReclaim, actions::EndSession,
                            actions::PublishJob, actions::PublishLedger, actions::AskDeviceRoom,
                            actions::Ready, actions::Fatal, actions::Log>;
using Actions = std::vector<Action>;

}  // namespace apportion
