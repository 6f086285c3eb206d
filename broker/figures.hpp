// The figures the core shows to the outside: pages, status, refusals. Copies of the book, never the book.
//
// Promises: sizes in bytes; one word, one meaning (docs/glossary.md). Never: read back as the truth.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "broker/ids.hpp"
#include "shm/bytes.hpp"

namespace apportion {

struct JobFigures {
  std::string job;
  std::int32_t priority = 0;
  Bytes guarantee;   // promised by the config (G)
  Bytes in_force;    // A
  Bytes covered;     // V
  Bytes limit;       // L
  Bytes charged;     // u, to the byte
  Bytes held;        // the part of u in HELD and OFFERED
  Bytes in_transit;  // the part of u on its way back: RETURNING, ZOMBIE, unmaking for this job
  Bytes orphaned;    // the part of u whose holder is not attached at the moment
  Bytes preparing;   // admitted, not charged yet: chunks are being made for it
  // What a program is told (report), for sessions that cannot shrink and for reclaimable ones.
  Bytes told_total;
  Bytes told_free;
  Bytes told_total_reclaimable;
  Bytes told_free_reclaimable;
  std::uint32_t sessions = 0;  // attached or orphaned
};

struct SessionFigures {
  SessionId id;
  std::string job;
  std::string label;
  std::uint32_t uid = 0;
  std::int32_t pid = 0;
  std::uint64_t start_time = 0;
  bool reclaimable = false;
  enum class State : std::uint8_t { attached, orphan, ended } state = State::attached;
  Bytes charged;
  Bytes offered;
  Bytes zombie;
  std::uint32_t chunks = 0;
  Bytes told_total;
  Bytes told_free;
};

struct PoolFigures {
  Bytes pool;        // P = charged + in_transit + free, always, to the byte
  Bytes charged;     // sum(u)
  Bytes in_transit;  // X
  Bytes free;        // F = free_chunks + loose
  Bytes free_chunks;
  Bytes loose;
  Bytes zombie;  // the part of charged and in_transit that waits for the device
  Bytes orphaned;
  Bytes foreign;  // last reading of the device; 0 where unknown
  Bytes device_total;
  Bytes device_free;
  Bytes chunk;
  std::uint32_t chunks = 0;
  std::uint64_t epoch = 0;
  bool ready = false;
  std::string closed;  // why nothing is granted; empty when open
};

struct LedgerFigures {
  PoolFigures pool;
  std::vector<JobFigures> jobs;
  std::vector<SessionFigures> sessions;
};

// Who holds memory that the refused request could have used: the answer to "who has it?".
struct Holder {
  std::string job;
  std::int32_t pid = 0;
  std::uint32_t uid = 0;
  Bytes held;
  Bytes above_guarantee;  // how much its job holds above its guarantee in force
};

struct Refusal {
  enum class Rule : std::uint8_t {
    malformed,    // the request itself makes no sense
    limit,        // rule 1
    uncovered,    // rules 2 and 3: within the guarantee, but the pool cannot meet it now
    burst,        // rule 4
    device_full,  // the driver had no room for a chunk that the book has room for (F32)
    send_failed,  // the chunks could not be exported or sent (F33)
    closed,       // the broker grants nothing at the moment
  } rule = Rule::limit;
  std::string job;
  Bytes asked;
  Bytes used;
  Bytes guarantee;  // in force
  Bytes covered;
  Bytes limit;
  Bytes headroom;               // what would have been granted now
  std::vector<Holder> holders;  // largest first, at most 8
  std::string remedy;           // what would have helped
  std::string reason;           // one line for a person, with all of the above
};

[[nodiscard]] const char* to_text(Refusal::Rule rule);

}  // namespace apportion
