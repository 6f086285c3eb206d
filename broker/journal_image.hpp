// What a journal says, read as a whole: every lease, every session, every job, and every record too damaged
// to believe. For the next broker and for tests.
//
// Promises: a damaged record is listed as damaged and never half believed (F17): whatever it stood for is
// unknown and stays charged. Never: writes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "broker/journal.hpp"

namespace apportion {

struct JournalImage {
  struct Job {
    std::uint32_t slot = 0;
    std::string name;
  };
  struct Session {
    SessionId id;
    SessionPhase state = SessionPhase::vacant;
    JournalSession fields;
  };
  // A chunk or a credit that exists in some state.
  struct Lease {
    ChunkId id;
    Bytes bytes;
    ChunkState state = ChunkState::vacant;
    std::optional<std::uint32_t> session_slot;
    std::optional<JournalOwner> last_owner;
    ChunkMarks marks;
  };
  struct Damage {
    enum class Table : std::uint8_t { header, jobs, sessions, chunks, credits } table = Table::header;
    std::uint32_t slot = 0;
  };

  JournalShape shape;
  std::uint64_t epoch = 0;
  std::vector<Job> jobs;
  std::vector<Session> sessions;
  std::vector<Lease> chunks;
  std::vector<Lease> credits;
  std::vector<Damage> damaged;

  // Nothing is leased, free or on its way, and nothing is damaged: a broker may start open.
  [[nodiscard]] bool empty() const { return chunks.empty() && credits.empty() && damaged.empty(); }
  [[nodiscard]] const Session* session_in(std::uint32_t slot) const;
  [[nodiscard]] const Job* job_in(std::uint32_t slot) const;
};

// Errc::protocol as Journal::open. `memory` may be a copy.
[[nodiscard]] Result<JournalImage> read_journal(std::span<const std::byte> memory);

}  // namespace apportion
