// The load rule: a Config and the facts of a device give the pool and each job's quota in whole chunks, or a
// refusal that names file, line and every term of the sum (docs/quotas.md). `apportion check` prints what the
// broker will use: both call load().
//
// Promises: sum of guarantees <= pool, and pool + overhead + helper context <= device total, whenever ok().
// Every amount is rounded once: fractions down, sizes up, to whole chunks. Pure: no device, no clock, no
// file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.hpp"
#include "shm/bytes.hpp"
#include "shm/device_facts.hpp"
#include "shm/result.hpp"

namespace apportion {

struct JobQuota {
  std::string name;
  Bytes guarantee{};  // G
  Bytes limit{};      // L >= G
  std::uint64_t guarantee_chunks = 0;
  std::uint64_t limit_chunks = 0;
  bool limit_clamped = false;  // C24: was above the pool
  Bytes told{};                // total that a program that cannot shrink is told
  Bytes told_reclaimable{};    // total that a reclaimable session is told
  std::string written;         // what the file says: share = "0.25"; empty where it says nothing
};

struct LoadReport {
  DeviceFacts device;
  Bytes chunk{};
  Bytes pool{};  // P
  std::uint64_t pool_chunks = 0;
  std::string pool_rule;  // "auto" in quotes, or as written
  Bytes overhead{};
  std::string overhead_rule;  // which rule gave it: "8 % of the device", "what remains", as written
  Reserve reserve = Reserve::all;
  std::string reserve_rule;
  std::vector<JobQuota> jobs;         // in the order of the file
  Bytes promised{};                   // sum of G; may be above the pool in a refused report
  Bytes left{};                       // T - P - overhead - helper context: rounding to whole chunks leaves it
  std::vector<std::string> warnings;  // one line each, with file and line
  std::vector<std::string> refusals;  // one line each, with file and line; empty: the config is good here

  [[nodiscard]] bool ok() const { return refusals.empty(); }
  // The first refusal as Errc::invalid, or success.
  [[nodiscard]] Status status() const;
  [[nodiscard]] const JobQuota* find_job(std::string_view name) const;
};

// Where a term cannot be worked out (no pool fits), jobs is empty and refusals says why.
[[nodiscard]] LoadReport load(const Config& config, const DeviceFacts& device);

// The overhead that "auto" stands for: max(2 GiB, 8 % of T), with a display max(3 GiB, in use + 1.5 GiB).
[[nodiscard]] Bytes automatic_overhead(const DeviceFacts& device);

// What a program is told as the device's total: by the job's `report`, less its library_room, never below 0.
[[nodiscard]] Bytes told_total(const JobConfig& job, Bytes guarantee, Bytes limit, bool reclaimable);

// The tables that `apportion check` shows: the terms of the load rule, the jobs and the warnings. Refusals
// are errors, and shown as such.
[[nodiscard]] std::string to_text(const LoadReport& report);

}  // namespace apportion
