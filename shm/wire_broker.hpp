// Messages the broker sends to clients and the CLI.
//
// Promises: each carries the broker's epoch; F54: a client closes and drops a GRANT of an older one.
// Never: shows a token to anybody but its owner.
#pragma once

#include "shm/status_rows.hpp"
#include "shm/wire_header.hpp"

namespace apportion::wire {

// Answer to HELLO. Three fds, in this order: ledger, job page, report page.
struct Welcome {
  static constexpr Type kType = Type::welcome;
  static constexpr std::uint32_t kSimulated = 1;   // driver_path and cudasim_dir are set, and only then
  static constexpr std::uint32_t kReattached = 2;  // the token named a living session
  // transport = "ipc": memory comes as slabs, in SLAB_GRANTs; their handles are in the job page.
  static constexpr std::uint32_t kSlabs = 4;
  static constexpr std::size_t kFds = 3;
  Header header;
  Token token;  // secret; for re-attaching
  std::uint64_t session_id = 0;
  std::uint64_t pool_bytes = 0;
  std::uint64_t chunk_bytes = 0;
  std::uint64_t device_total_bytes = 0;
  std::uint64_t guarantee_bytes = 0;  // G
  std::uint64_t in_force_bytes = 0;   // A
  std::uint64_t covered_bytes = 0;    // V
  std::uint64_t limit_bytes = 0;      // L
  std::uint64_t used_bytes = 0;       // of the job, by other sessions
  std::uint64_t told_total_bytes = 0;
  std::uint64_t wait_ms = 0;         // how long a guaranteed request may wait (the job's `wait`)
  std::uint64_t idle_return_ms = 0;  // after how long idle chunks go back
  LayoutVersions layouts;
  std::uint32_t flags = 0;
  std::uint32_t broker_pid = 0;
  Text<64> job;  // the job really joined
  Text<48> device_uuid;
  Text<96> device_name;
  Text<512> driver_path;  // of the simulated libcuda
  Text<512> cudasim_dir;  // the simulated device's folder
};
static_assert(sizeof(Welcome) == 1400);

// The whole message before it was not accepted. After a refused HELLO the broker closes the connection.
struct Refused {
  static constexpr Type kType = Type::refused;
  Header header;
  std::uint32_t code = 0;          // Errc
  std::uint16_t refused_type = 0;  // Type of what was refused; 0: could not be read
  std::uint16_t reserved = 0;
  Text<1024> text;  // one line: what, where, what to do
};
static_assert(sizeof(Refused) == 1064);

// Since 1.1. Answer to REQUEST in a session whose WELCOME said kSlabs, in parts; no fds: the handles are in
// the job page before this leaves. Acknowledged as a GRANT is.
struct SlabGrant {
  static constexpr Type kType = Type::slab_grant;
  Header header;
  Part part;
  std::array<SlabPlace, kMaxGrantChunks> entries{};
};
static_assert(sizeof(SlabGrant) == 3120);

// Since 1.1. Unasked, in parts: the process that made these slabs is gone (F52), and with it their contents.
// They are the session's no more (nothing is to be released), but count until their imports are closed and
// the device shows the room.
struct SlabsLost {
  static constexpr Type kType = Type::slabs_lost;
  static constexpr std::size_t kMost = 440;
  Header header;
  Part part;
  Text<256> text;  // one line: what happened, and what to do
  std::array<std::uint64_t, kMost> ids{};
};
static_assert(sizeof(SlabsLost) == 3824);

enum class GrantKind : std::uint32_t {
  chunks = 1,  // one fd per entry, in the order of the entries
  credit = 2,  // no fds: one entry, chunk_id is the credit's lease id
};

// Answer to REQUEST, in parts. Each message is acknowledged (GRANT_ACK, GRANT_NACK) by its own ids.
struct Grant {
  static constexpr Type kType = Type::grant;
  static constexpr std::uint32_t kScrubbed = 1;
  Header header;
  Part part;
  std::uint32_t kind = static_cast<std::uint32_t>(GrantKind::chunks);
  std::uint32_t flags = 0;
  std::array<ChunkEntry, kMaxGrantChunks> entries{};
};
static_assert(sizeof(Grant) == 2104);

// Answer to REQUEST when nothing was taken. Bytes of the job, as the decision saw them.
struct Refusal {
  static constexpr Type kType = Type::refusal;
  Header header;
  std::uint32_t code = 0;  // Errc: quota, out_of_memory, timed_out ...
  std::uint32_t reserved = 0;
  std::uint64_t asked_bytes = 0;
  std::uint64_t used_bytes = 0;
  std::uint64_t guarantee_bytes = 0;  // A, in force
  std::uint64_t covered_bytes = 0;    // V
  std::uint64_t limit_bytes = 0;      // L
  std::uint64_t headroom_bytes = 0;   // what a request could have got at once
  std::uint64_t free_bytes = 0;       // F
  Text<1024> text;                    // one line: who holds the rest and what would have helped
};
static_assert(sizeof(Refusal) == 1120);

// Answer to RELEASE, once all parts are booked.
struct Released {
  static constexpr Type kType = Type::released;
  Header header;
  std::uint64_t bytes = 0;    // taken back
  std::uint32_t chunks = 0;   // taken back
  std::uint32_t unknown = 0;  // ids that were not this session's; ignored
};
static_assert(sizeof(Released) == 48);

struct Detached {
  static constexpr Type kType = Type::detached;
  Header header;
  std::uint64_t bytes = 0;  // taken back
};
static_assert(sizeof(Detached) == 40);

// Give back at least `bytes`: stop handing out, wait for the GPU, unmap, release, close, then RELEASE.
// Answered by RECLAIMED, also where there is nothing to give.
struct Reclaim {
  static constexpr Type kType = Type::reclaim;
  Header header;
  std::uint64_t bytes = 0;
  std::uint64_t deadline_ms = 0;  // from the receipt
};
static_assert(sizeof(Reclaim) == 48);

inline constexpr std::size_t kMaxJobRows = 20;
inline constexpr std::size_t kMaxSessionRows = 11;
inline constexpr std::size_t kMaxHolderRows = 40;

// Answers to STATUS_REQUEST. `part` counts within one kind of rows; kLast marks the last message of all.
struct StatusBroker {
  static constexpr Type kType = Type::status_broker;
  Header header;
  Part part;
  BrokerRow row;
};
struct StatusJobs {
  static constexpr Type kType = Type::status_jobs;
  Header header;
  Part part;
  std::array<JobRow, kMaxJobRows> rows{};
};
struct StatusSessions {
  static constexpr Type kType = Type::status_sessions;
  Header header;
  Part part;
  std::array<SessionRow, kMaxSessionRows> rows{};
};
struct StatusHolders {
  static constexpr Type kType = Type::status_holders;
  Header header;
  Part part;
  std::array<HolderRow, kMaxHolderRows> rows{};
};
static_assert(sizeof(StatusBroker) == 1368);
static_assert(sizeof(StatusJobs) == 3888);
static_assert(sizeof(StatusSessions) == 3744);
static_assert(sizeof(StatusHolders) == 3888);

}  // namespace apportion::wire
