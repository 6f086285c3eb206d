// The rows a STATUS_REQUEST is answered with: the ledger's records, and what only the broker knows beside
// them.
//
// Promises: fixed sizes, pinned by the golden test. Never: holds a token or anything a stranger may not see
// beyond what the ledger already shows.
#pragma once

#include "shm/ledger_layout.hpp"
#include "shm/report_layout.hpp"
#include "shm/wire_header.hpp"

namespace apportion::wire {

struct BrokerRow {
  static constexpr std::uint32_t kSimulated = 1, kClosed = 2, kNotReady = 4, kReserveLeased = 8;
  TotalsRecord totals;
  Text<48> device_uuid;
  Text<96> device_name;
  Text<32> version;
  Text<256> socket;
  Text<256> config;
  Text<512> note;  // why it is closed or not ready; empty otherwise
  std::uint32_t pid = 0;
  std::uint32_t keeper_pid = 0;
  std::uint64_t uptime_ms = 0;
  std::uint64_t generation = 0;
  std::uint32_t jobs = 0;
  std::uint32_t sessions = 0;
  std::uint32_t flags = 0;
  std::uint32_t restarts = 0;
};
static_assert(sizeof(BrokerRow) == 1320);

struct JobRow {
  JobRecord job;
  std::uint64_t peak_charged = 0;  // bytes, since the job's first session of this epoch
  std::uint64_t grants = 0;        // GRANTs sent
  std::uint64_t refusals = 0;      // REFUSALs sent
  std::uint64_t waiting = 0;       // requests waiting
};
static_assert(sizeof(JobRow) == 192);

struct SessionRow {
  SessionRecord session;
  Text<64> job_name;
  ReportFigures report;  // clamped by the broker (F23)
};
static_assert(sizeof(SessionRow) == 336);

enum class HolderKind : std::uint32_t {
  foreign = 1,       // a process outside the broker, as NVML lists it
  foreign_rest = 2,  // device memory no listed process accounts for
  zombie = 3,        // a dead session whose memory the device has not given back
  context = 4,       // a client's context and libraries, outside the pool
  helper = 5,        // the context of the broker's helper
};

struct HolderRow {
  std::uint64_t bytes = 0;
  std::uint32_t pid = 0;  // 0: unknown
  std::uint32_t uid = 0;
  std::uint32_t kind = 0;  // HolderKind
  std::uint32_t reserved = 0;
  std::uint64_t session_id = 0;  // of a zombie
  Text<64> name;                 // process or job name
};
static_assert(sizeof(HolderRow) == 96);

}  // namespace apportion::wire
