// The writer of the journal: the broker's crash-safe record of every lease, in memory that outlives the
// broker (a memfd that the keeper holds). The book calls it before anything that depends on a change leaves.
//
// Promises: each public setter is one atomic store, or writes the fields of an unused record and then commits
// them with one; killed between any two stores the journal names every lease a client can hold (F11, F12,
// F53). Never: allocates, blocks, reads back for decisions, or touches a page of a table before its first
// use. Not thread-safe: one strand writes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "broker/chunk_state.hpp"
#include "broker/ids.hpp"
#include "broker/journal_layout.hpp"
#include "shm/bytes.hpp"
#include "shm/result.hpp"

namespace apportion {

// What a journal is made for. Slots bound the tables, so the memory never grows.
struct JournalShape {
  Bytes pool{};
  Bytes chunk{};
  std::uint32_t job_slots = 512;
  std::uint32_t session_slots = 8192;
  std::uint32_t chunk_slots = 0;
  std::uint32_t credit_slots = 8192;
  std::array<std::uint64_t, 2> device_uuid{};

  // Enough chunk slots for a pool cut into its smallest pieces.
  [[nodiscard]] static JournalShape for_pool(Bytes pool, Bytes chunk, Bytes granularity);
  [[nodiscard]] std::size_t bytes() const;  // how large the memory must be
  friend bool operator==(const JournalShape&, const JournalShape&) = default;
};

// The job slot and user that had the chunk last.
struct JournalOwner {
  std::uint32_t job_slot = 0;
  std::uint32_t uid = 0;
  friend bool operator==(const JournalOwner&, const JournalOwner&) = default;
};

// What goes with a chunk's state, in the same store: a chunk is never FREE and clean before it was
// overwritten, whenever the broker dies (F38).
struct ChunkMarks {
  bool clean = false;  // FREE only: overwritten since anybody had it
  bool bound = false;  // only for the user of its last owner
  bool slab = false;   // memory of the helper, which does not outlive the broker
};

// The unchanging part of a session's record.
struct JournalSession {
  Token token{};
  std::uint32_t uid = 0;
  std::int32_t pid = 0;
  std::uint64_t start_time = 0;
  std::uint32_t job_slot = 0;
  bool reclaimable = false;
  friend bool operator==(const JournalSession&, const JournalSession&) = default;
};

class Journal {
 public:
  // `memory` is zeroed (a new memfd), 8-byte aligned and outlives the Journal. Errc::invalid where too small.
  [[nodiscard]] static Result<Journal> format(std::span<std::byte> memory, const JournalShape& shape);
  // A journal of a predecessor. Errc::protocol: not a journal, another major layout (F19), or a damaged
  // header.
  [[nodiscard]] static Result<Journal> open(std::span<std::byte> memory);

  [[nodiscard]] const JournalShape& shape() const { return shape_; }
  [[nodiscard]] std::span<const std::byte> memory() const;

  void set_epoch(std::uint64_t epoch);

  // Name of at most 63 bytes; the slot must be unused or hold the same name.
  void put_job(std::uint32_t slot, std::string_view name);

  // The generation an id of this slot had last, 0 if never used or damaged beyond reading.
  [[nodiscard]] std::uint64_t session_generation(std::uint32_t slot) const;
  [[nodiscard]] std::uint64_t chunk_generation(std::uint32_t slot) const;

  // Writes the fields, then commits with state attached.
  void put_session(SessionId id, const JournalSession& session);
  void set_session(SessionId id, SessionPhase state);

  // Writes the fields (no last owner), then commits with state making.
  void put_chunk(ChunkId id, Bytes bytes, bool slab = false);
  // lessee: nothing for FREE, MAKING and memory that is nobody's.
  void set_chunk(ChunkId id, ChunkState state, std::optional<SessionId> lessee, ChunkMarks marks = {});
  void set_owner(ChunkId id, JournalOwner owner);

  // For tests: called after every store, so that a test can look at the journal as a crash there would leave
  // it.
  using Observer = void (*)(void* context);
  void observe(Observer observer, void* context) {
    observer_ = observer;
    context_ = context;
  }

 private:
  Journal(std::uint64_t* words, const JournalShape& shape);
  [[nodiscard]] std::uint64_t load(std::size_t place) const;
  void store(std::size_t place, std::uint64_t value);
  void store_sealed(std::size_t place, std::uint64_t payload, std::uint64_t salt = 0);

  std::uint64_t* words_;
  JournalShape shape_;
  journal_layout::Tables tables_;
  Observer observer_ = nullptr;
  void* context_ = nullptr;
};

}  // namespace apportion
