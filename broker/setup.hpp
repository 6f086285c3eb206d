// What the core is told once, at its start: the pool and the jobs, already resolved and rounded (config/
// reads and checks the file; the shell resolves the device). Plain values only.
//
// Promises: sizes are in bytes; guarantee and limit are whole chunks and guarantee <= limit <= pool.
// Never: names a file, a device handle or an fd.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shm/bytes.hpp"

namespace apportion {

// "all": the pool is held at once. "leased": memory is taken from the device only as it is leased.
enum class Reserve : std::uint8_t { all, leased };
// Whether a guarantee is in force only while the job has a session, or always.
enum class Hold : std::uint8_t { attached, always };
// Which figure a program is told as its total. automatic: the guarantee for sessions that cannot shrink (the
// limit where the guarantee is 0), the limit for reclaimable ones.
enum class Report : std::uint8_t { automatic, guarantee, limit };
// What becomes of a chunk that a live client returned. automatic: kept for the same uid, remade for others.
enum class Return : std::uint8_t { automatic, trusted, strict };

struct JobRule {
  std::string name;
  Bytes guarantee;
  Bytes limit;
  Bytes library_room;
  std::int32_t priority = 0;
  Hold hold = Hold::attached;
  Report report = Report::automatic;
  Return on_return = Return::automatic;
  bool lend = true;
  bool anyone = true;               // no user rule: whoever reaches the socket
  std::vector<std::uint32_t> uids;  // else one of these,
  std::vector<std::uint32_t> gids;  // or a member of one of these
};

struct CoreSetup {
  Bytes pool;                   // P, whole chunks
  Bytes chunk;                  // size of a pool chunk
  Bytes granularity{2U << 20};  // exact-size chunks are rounded up to it
  Reserve reserve = Reserve::all;
  std::vector<JobRule> jobs;
  std::uint32_t sessions_per_uid = 256;
  // How long the first filling of the pool is tried again when the device says it is full (a predecessor's
  // memory comes back late, contract rule 6) before Fatal.
  std::int64_t fill_patience_ns = 5'000'000'000;
  // Names this broker's incarnation; grants carry it.
  std::uint64_t epoch = 1;
  // Bookkeeping is recounted from scratch after each event. For tests and debug builds: O(chunks) per event.
  bool check_every_event = false;
};

}  // namespace apportion
