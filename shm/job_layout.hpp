// The job page: what all sessions of one job may know about their quota, without asking, and the handles of
// the slabs they hold.
//
// One memfd per job and epoch, sealed SHRINK, GROW, FUTURE_WRITE, SEAL. Written by the broker before the
// GRANT that depends on it (F12: what a client can see never lags behind what it holds). Read by the job's
// sessions.
#pragma once

#include "shm/ipc_handle.hpp"
#include "shm/page.hpp"
#include "shm/wire_header.hpp"

namespace apportion {

inline constexpr std::uint16_t kJobPageMajor = 1;
inline constexpr std::uint16_t kJobPageMinor = 1;  // 1.1: the slab table

// Bytes. One consistent snapshot.
struct JobFigures {
  std::uint64_t guarantee = 0;  // G
  std::uint64_t in_force = 0;   // A
  std::uint64_t covered = 0;    // V
  std::uint64_t limit = 0;      // L
  std::uint64_t used = 0;       // charged - idle - unspent - in_transit
  std::uint64_t charged = 0;    // u
  // What programs are told: total = the guarantee for those that cannot shrink, the limit for reclaimable
  // ones (design section 6); free = total - used, never below 0.
  std::uint64_t told_total = 0;
  std::uint64_t told_free = 0;
  std::uint64_t told_total_reclaimable = 0;
  std::uint64_t told_free_reclaimable = 0;
  std::uint64_t pressure = 0;        // bytes wanted within guarantees that cannot be met from free memory
  std::uint64_t reclaim_target = 0;  // bytes this job's sessions are asked to give back; 0: none
  std::uint64_t sessions = 0;        // count
};
static_assert(sizeof(JobFigures) == 104);

struct JobPageHeader {
  wire::Text<64> job;
  SlotPairHeader slots;
  std::uint64_t figures_bytes = sizeof(JobFigures);
  // Of a job with transport = "ipc"; version 0 says that there is no table.
  std::uint32_t slab_table_version = 0;
  std::uint32_t slab_count = 0;         // SlabEntries, used or not
  std::uint64_t slab_table_offset = 0;  // from the start of the page, a multiple of 8
};
static_assert(sizeof(JobPageHeader) == 120);

inline constexpr std::uint32_t kSlabTableVersion = 1;

// One slab: written before the GRANT that names its place, cleared after it was given back. Words, each
// stored with release and loaded with acquire (shm/job_page.hpp says in which order).
struct SlabEntry {
  std::uint64_t lease_id = 0;  // 0: the place is empty
  std::uint64_t bytes = 0;
  IpcHandle handle{};
};
static_assert(sizeof(SlabEntry) == 80);

// The page without slabs; the table follows it.
inline constexpr std::size_t kJobPageBytes = 4096;
[[nodiscard]] constexpr std::size_t job_page_bytes(std::size_t slabs) {
  return kJobPageBytes + slabs * sizeof(SlabEntry);
}

}  // namespace apportion
