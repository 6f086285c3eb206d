// What the core is told once, at its start: the pool and the jobs, already resolved and rounded (config/
// reads and checks the file; the shell resolves the device). Plain values only.
//
// Promises: sizes are in bytes; guarantee and limit are whole chunks and guarantee <= limit <= pool.
// Never: names a file, a device handle or an fd.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/config.hpp"
#include "config/load.hpp"
#include "shm/bytes.hpp"

namespace apportion {

struct JobRule {
  std::string name;
  Bytes guarantee{};         // G
  Bytes limit{};             // L
  Bytes told{};              // total that a session is told that cannot shrink (config's `report`)
  Bytes told_reclaimable{};  // total that a reclaimable session is told
  std::int32_t priority = 0;
  Hold hold = Hold::attached;
  ReturnRule on_return = ReturnRule::automatic;
  Scrub scrub = Scrub::cross_owner;
  Transport transport = Transport::vmm;
  bool lend = true;
  std::int64_t wait_ns = 10'000'000'000;  // the longest a request waits
  std::vector<UserRule> users;            // empty: whoever reaches the socket
};

struct CoreSetup {
  Bytes pool{};               // P, whole chunks
  Bytes chunk{};              // size of a pool chunk
  Bytes granularity = 2_MiB;  // exact-size chunks are rounded up to it; divides chunk
  Bytes device_total{};       // T, overhead and helper context: shown, never decided with
  Bytes overhead{};
  Bytes helper_context{};
  Reserve reserve = Reserve::all;
  std::vector<JobRule> jobs;
  std::uint32_t sessions_per_uid = 256;
  std::uint32_t own_uid = 0;  // the broker's and its helper's: cudaIpc opens memory of one's own user only
  // How long the first filling of the pool is tried again while the device says it is full (a predecessor's
  // memory comes back late, contract rule 6) before Fatal.
  std::int64_t fill_patience_ns = 5'000'000'000;
  std::int64_t reclaim_deadline_ns = 2'000'000'000;
  // Names this broker's incarnation; grants carry it.
  std::uint64_t epoch = 1;
  // Not empty: start closed for this reason, all of the pool unknown (F17: a journal that cannot be read).
  std::string closed;
  // The process that a person ends so that keeper and broker end: the broker's own.
  std::int32_t stop_pid = 0;
  // Recount everything after each event. For tests and debug builds: O(chunks) per event.
  bool check_every_event = false;
};

// The setup of a config that load() found good on this device. report.ok() must hold.
[[nodiscard]] CoreSetup core_setup(const Config& config, const LoadReport& report, std::uint64_t epoch);

}  // namespace apportion
