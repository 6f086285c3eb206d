// The words of this project, and the layout of the ledger: the broker's published, client-read-only snapshot.
//
//   device      one physical GPU, or one MIG instance; one broker each
//   pool        the physical memory the broker manages
//   chunk       one physical allocation = one driver handle
//   slab        one cuMemAlloc allocation handed out by cudaIpc handle
//   credit      bytes given back to the driver so that an unmodified process can allocate them itself
//   loose       bytes of the pool that are in no chunk at the moment
//   lease       the right of one session to one chunk, slab or credit, with a state
//   job         a named entry of the config with guarantee and limit; owner of quota over all its processes
//   client      a process that links or preloads the library
//   session     one attached client; outlives a reconnect; keyed by a token, never by pid
//   charge      what was taken from a job's quota: every lease in OFFERED, HELD, RETURNING, ORPHAN, ZOMBIE,
//               its credit, and its bytes being scrubbed
//   guarantee   bytes a job can always get: promised (G), in force (A), covered (V)
//   limit       bytes a job can never exceed (L)
//   pressure    bytes of guaranteed requests that cannot be met from free memory
//   foreign     device memory held by processes outside the broker
//   overhead    device memory outside the pool that clients' contexts and libraries take
//   told        the total a program is shown (design section 6)
//   epoch       broker incarnation;  generation  snapshot number within it
//
// Shape: PageHeader | LedgerHeader | slot 0 | slot 1. A slot is a SlotHeader, the totals, then job and
// session records; shm/slot_pair.hpp says how it is written and read. Promises: fixed offsets, pinned by the
// golden test; a newer minor may lengthen records (strides are in the header) but never moves a field. Never:
// decides anything. The book does.
#pragma once

#include "shm/page.hpp"
#include "shm/wire_header.hpp"

namespace apportion {

inline constexpr std::uint16_t kLedgerMajor = 1;
inline constexpr std::uint16_t kLedgerMinor = 0;
inline constexpr std::uint32_t kLedgerMaxJobs = 256;
inline constexpr std::uint32_t kLedgerMaxSessions = 2048;

// All in bytes. pool = charged + in_transit + free + loose, to the byte: P = sum(u) + X + F.
struct TotalsRecord {
  std::uint64_t device_total = 0;
  std::uint64_t pool = 0;
  std::uint64_t chunk = 0;           // size of one chunk
  std::uint64_t charged = 0;         // sum of u over the jobs
  std::uint64_t in_transit = 0;      // X: MAKING, UNMAKING, scrubbed ahead; nobody's
  std::uint64_t free = 0;            // free chunks
  std::uint64_t loose = 0;           // in no chunk; F = free + loose
  std::uint64_t foreign = 0;         // held by strangers, as far as the device tells
  std::uint64_t overhead = 0;        // kept outside the pool
  std::uint64_t helper_context = 0;  // the helper's own context
};
static_assert(sizeof(TotalsRecord) == 80);

// Figures of one job, in bytes. used, as shown to people, = charged - idle - unspent - in_transit.
struct JobRecord {
  static constexpr std::uint32_t kHoldAlways = 1, kNoLend = 2, kPaused = 4, kOverLimit = 8;
  wire::Text<64> name;
  std::uint64_t guarantee = 0;   // G, promised by the config
  std::uint64_t in_force = 0;    // A
  std::uint64_t covered = 0;     // V
  std::uint64_t limit = 0;       // L
  std::uint64_t charged = 0;     // u
  std::uint64_t idle = 0;        // of u: leased, with no live block in it
  std::uint64_t unspent = 0;     // of u: credit nobody has allocated
  std::uint64_t in_transit = 0;  // of u: RETURNING, ZOMBIE, being scrubbed
  std::uint64_t pressure = 0;    // asked within the guarantee, waiting
  std::uint64_t told_total = 0;  // what a new session of this job that cannot shrink is told
  std::int32_t priority = 0;
  std::uint32_t sessions = 0;
  std::uint32_t flags = 0;
  std::uint32_t reserved = 0;
};
static_assert(sizeof(JobRecord) == 160);

enum class SessionState : std::uint32_t { attached = 1, orphan = 2, zombie = 3, leaving = 4 };

struct SessionRecord {
  static constexpr std::uint32_t kReclaimable = 1, kOverdue = 2;
  std::uint64_t id = 0;   // never the token: the ledger is read by everyone
  std::uint32_t pid = 0;  // in the broker's pid namespace; 0: unknown
  std::uint32_t uid = 0;
  std::uint32_t job = 0;    // index of its JobRecord in the same snapshot
  std::uint32_t state = 0;  // SessionState
  std::uint32_t flags = 0;
  std::uint32_t leases = 0;
  std::uint64_t charged = 0;  // bytes
  std::uint64_t idle = 0;
  std::uint64_t unspent = 0;
  std::uint64_t in_transit = 0;
  std::uint64_t told_total = 0;
  std::uint64_t pid_start_time = 0;  // clock ticks after boot; 0: unknown
  wire::Text<32> label;
};
static_assert(sizeof(SessionRecord) == 112);

// After the PageHeader; constant over the page's life.
struct LedgerHeader {
  wire::Text<48> device_uuid;
  wire::Text<80> device_name;
  SlotPairHeader slots;
  std::uint32_t totals_bytes = sizeof(TotalsRecord);
  std::uint32_t job_stride = sizeof(JobRecord);
  std::uint32_t session_stride = sizeof(SessionRecord);
  std::uint32_t max_jobs = kLedgerMaxJobs;
  std::uint32_t max_sessions = kLedgerMaxSessions;
  std::uint32_t reserved = 0;
};

// What a slot holds before its records. Counts are those listed; `*_total` those that exist.
struct LedgerCounts {
  std::uint32_t jobs = 0;
  std::uint32_t sessions = 0;
  std::uint32_t jobs_total = 0;
  std::uint32_t sessions_total = 0;
};
static_assert(sizeof(LedgerCounts) == 16);

}  // namespace apportion
