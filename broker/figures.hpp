// The figures the core shows beside the ledger's records and the job page's (shm/): the pool as a whole, and
// why a request was refused. Copies of the book, never the book.
//
// Promises: sizes in bytes; one word, one meaning (docs/glossary.md). Never: read back as the truth.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "broker/ids.hpp"
#include "shm/bytes.hpp"

namespace apportion {

struct PoolFigures {
  Bytes pool{};        // P = charged + in_transit + free, always, to the byte
  Bytes charged{};     // sum(u)
  Bytes in_transit{};  // X
  Bytes free{};        // F = free chunks + loose
  Bytes loose{};
  Bytes zombie{};     // the part of charged and in_transit that waits for the device
  Bytes orphan{};     // the part of charged whose holder is not attached
  Bytes unsettled{};  // the part of in_transit that a predecessor left and nobody has settled
  Bytes foreign{};    // last reading of the device; 0 where unknown
  std::uint32_t chunks = 0;
};

// Since this broker started.
struct JobCounters {
  Bytes peak_charged{};
  std::uint64_t grants = 0;
  std::uint64_t refusals = 0;
};

// Who holds memory that the refused request could have used: the answer to "who has it?".
struct Holder {
  std::string job;
  std::int32_t pid = 0;
  std::uint32_t uid = 0;
  bool ended = false;  // its process has, and the device has not given the memory back yet
  Bytes held{};
  Bytes above_guarantee{};  // how much its job is above its guarantee in force
};

struct Refusal {
  enum class Rule : std::uint8_t {
    malformed,      // the request itself makes no sense
    limit,          // rule 1
    uncovered,      // rules 2 and 3: within the guarantee, but the pool cannot meet it now
    burst,          // rule 4
    device_full,    // the driver had no room for a chunk that the book has room for (F32)
    scrub_failed,   // the chunks could not be overwritten first (F38)
    helper_failed,  // the helper could not make the slab, or died over it (F52)
    send_failed,    // the chunks could not be exported or sent (F33)
    closed,         // the broker grants nothing at the moment
  } rule = Rule::limit;
  std::string job;
  Bytes asked{};
  Bytes used{};
  Bytes guarantee{};  // in force
  Bytes covered{};
  Bytes limit{};
  Bytes headroom{};             // what would have been granted now
  Bytes free{};                 // F
  std::vector<Holder> holders;  // most above the guarantee first, then largest; at most 8
  std::string remedy;           // what would have helped
  std::string reason;           // one line for a person, with all of the above
};

[[nodiscard]] const char* to_text(Refusal::Rule rule);

}  // namespace apportion
