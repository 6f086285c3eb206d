// The truth: which chunks exist, in which state, for whom, and what each job is charged.
//
// Promises, after every public call: each chunk is in exactly one state and has at most one lessee; a job's
// account is the sum of its chunks to the byte; P = sum(u) + X + F, where F is free chunks and loose bytes
// and X is what is in transit and nobody's; the journal says the same, written inside the call (over-count,
// never under-count). check() recounts all of it. Never: decides who gets what (policy, stock), talks to
// anyone, knows the time. Not thread-safe: one strand.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "broker/charge.hpp"
#include "broker/chunk_state.hpp"
#include "broker/ids.hpp"
#include "broker/journal.hpp"
#include "broker/tally.hpp"
#include "shm/bytes.hpp"

namespace apportion {

// Who had a chunk last: only the same pair gets it as it is.
struct Owner {
  JobIndex job;
  std::uint32_t uid = 0;
  friend auto operator<=>(const Owner&, const Owner&) = default;
};

// What is known of a chunk that somebody may have had.
struct Past {
  std::optional<Owner> owner;  // who had it last; none: made, and nobody's since. Its contents are unknown
  bool clean = false;          // overwritten since
  bool bound = false;          // a process of owner->uid may have kept an fd: for that user only
  bool stubborn = false;       // the driver would not overwrite it. Not in the journal: the next broker tries
  friend auto operator<=>(const Past&, const Past&) = default;
};

struct BookedChunk {
  ChunkId id;
  Bytes bytes{};
  ChunkState state = ChunkState::vacant;
  bool slab = false;  // one cuMemAlloc allocation of the helper, instead of a chunk of the broker's
  SessionId lessee;   // names nothing where the chunk is nobody's
  RequestId request;  // of the grant it was offered in
  bool sent = false;  // OFFERED: the client may have it
  Past past;
  Charge charge;
  std::uint32_t place = 0;  // in the list of its session or of the free chunks of its past
};

struct BookedSession {
  SessionId id;
  SessionPhase state = SessionPhase::vacant;
  JobIndex job;
  Token token{};
  std::uint32_t uid = 0;
  std::int32_t pid = 0;
  std::uint64_t start_time = 0;
  bool reclaimable = false;
  std::string label;
  Tally tally;
  std::vector<std::uint32_t> chunks;  // slots
};

struct JobBook {
  std::string name;
  std::uint32_t journal_slot = 0;
  Account account;
  Tally tally;                 // of what the account is charged with
  std::uint32_t sessions = 0;  // attached or orphaned
  std::uint64_t arrival = 0;   // order in which jobs got their first session; 0: has none
  bool changed = true;         // figures moved since this was last cleared
};

class Book {
 public:
  // The journal's job slots are looked up by name, or taken for the names it does not have.
  Book(Bytes pool, Bytes chunk, const std::vector<std::string>& jobs, Journal& journal);
  Book(const Book&) = delete;
  Book& operator=(const Book&) = delete;

  [[nodiscard]] Bytes pool() const { return pool_; }
  [[nodiscard]] Bytes chunk() const { return chunk_; }
  [[nodiscard]] Bytes loose() const { return loose_; }
  [[nodiscard]] Bytes free() const { return loose_ + nobodys_.in(ChunkState::free); }  // F
  [[nodiscard]] Bytes in_transit() const;                                              // X
  // The part of X that becomes F by itself: MAKING, UNMAKING and SCRUB. A ZOMBIE may take for ever.
  [[nodiscard]] Bytes coming() const;
  [[nodiscard]] Bytes scrubbing() const { return nobodys_.in(ChunkState::scrub); }  // and nobody's
  [[nodiscard]] Bytes charged() const;                                              // sum(u)
  [[nodiscard]] Bytes unsettled() const { return unsettled_; }
  [[nodiscard]] Bytes in_state(ChunkState state) const;  // over all jobs and nobody
  [[nodiscard]] Bytes slabs_in(ChunkState state) const { return slabs_.in(state); }  // the part in slabs
  [[nodiscard]] Bytes slabs() const { return slabs_.total(); }
  [[nodiscard]] std::uint32_t chunk_count() const;

  [[nodiscard]] std::vector<JobBook>& jobs() { return jobs_; }
  [[nodiscard]] const std::vector<JobBook>& jobs() const { return jobs_; }
  [[nodiscard]] JobBook& job(JobIndex index) { return jobs_[index.value]; }
  [[nodiscard]] const JobBook& job(JobIndex index) const { return jobs_[index.value]; }

  // nullptr where the id names nothing any more.
  [[nodiscard]] const BookedChunk* find(ChunkId id) const;
  [[nodiscard]] const BookedSession* find(SessionId id) const;
  [[nodiscard]] const std::vector<BookedSession>& session_slots() const {
    return sessions_;
  }  // vacant ones included
  [[nodiscard]] ChunkId id_of(std::uint32_t chunk_slot) const { return chunks_[chunk_slot].id; }

  // Sessions. open: nothing where all session slots are taken.
  [[nodiscard]] std::optional<SessionId> open(JobIndex job, const JournalSession& fields, std::string label);
  void orphan(SessionId id);        // attached -> orphan; HELD -> ORPHAN
  void attach_again(SessionId id);  // orphan -> attached; its chunks stay ORPHAN
  void end(SessionId id);           // -> ended; forgotten once no chunk names it

  // From loose bytes to a chunk and back. bytes <= loose().
  [[nodiscard]] ChunkId begin_make(Bytes bytes, bool slab = false);  // loose -> MAKING
  void made(ChunkId id);                                             // MAKING -> FREE, without a past
  void make_failed(ChunkId id);                                      // MAKING -> loose
  void begin_unmake(ChunkId id);   // FREE, RETURNING or SCRUB -> UNMAKING, charged as it was
  void unmade(ChunkId id);         // UNMAKING -> loose
  void unmake_failed(ChunkId id);  // F34: UNMAKING -> ZOMBIE, charged as it was
  void lost(ChunkId id);           // F52: a slab, any state -> ZOMBIE, charged as it was
  void settled(ChunkId id);        // ZOMBIE -> loose: the device has shown the room

  // Leases.
  void offer(ChunkId id, SessionId session, RequestId request);  // FREE -> OFFERED, charged
  void mark_sent(ChunkId id);                                    // its GRANT leaves now
  void roll_back(ChunkId id);                                    // OFFERED, never sent -> FREE as it was
  void hold(ChunkId id);                                         // OFFERED or ORPHAN -> HELD
  void begin_return(ChunkId id);                                 // OFFERED, HELD or ORPHAN -> RETURNING
  void put_back(ChunkId id, bool bind);                          // RETURNING -> FREE, with its last owner
  // OFFERED, HELD, ORPHAN -> ZOMBIE, charged; SCRUB -> ZOMBIE, charged as it was
  void bury(ChunkId id);

  // Overwriting. What is not confirmed by scrubbed_* is as it was, also after a crash (F38).
  void begin_scrub(ChunkId id);  // FREE -> SCRUB, nobody's; RETURNING -> SCRUB, charged as it was
  void begin_scrub_for(ChunkId id, SessionId session, RequestId request);  // FREE -> SCRUB, charged
  void leave_scrub_alone(ChunkId id);  // SCRUB for a session -> SCRUB, nobody's: it wants it no more
  void scrubbed_free(ChunkId id);      // SCRUB, nobody's -> FREE and clean
  void scrubbed_offer(ChunkId id);     // SCRUB for a session -> OFFERED
  void scrub_failed(ChunkId id);       // SCRUB, not of a return -> FREE as it was
  void mark_stubborn(ChunkId id);      // FREE

  // The free chunk with the lowest rank; `rank` answers nothing for one that is not to be had.
  using Rank = std::function<std::optional<int>(const Past&)>;
  [[nodiscard]] std::optional<ChunkId> pick_free(const Rank& rank) const;

  // A predecessor's leases, before anything else: charged, ORPHAN, not usable. The rest of the pool is
  // unsettled, which counts as X. Later, recovery settles it.
  void adopt_session(SessionId id, JobIndex job, const JournalSession& fields);
  void adopt_chunk(ChunkId id, Bytes bytes, SessionId session, bool slab = false);
  void leave_rest_unsettled();
  // The adopted session's process is gone: its chunks are unsettled (in the journal ZOMBIE of an ENDED
  // session, so that the next broker counts them too), and the session is forgotten.
  void leave_unsettled(SessionId id);

  // Recounts everything; ends the process where an invariant is broken. O(slots used).
  void check() const;

 private:
  [[nodiscard]] BookedChunk& at(ChunkId id);
  [[nodiscard]] BookedSession& at(SessionId id);
  [[nodiscard]] std::vector<std::uint32_t>& list_of(const BookedChunk& chunk);
  void enter(BookedChunk& chunk);  // adds the chunk to tallies and lists, as its fields say
  void leave(BookedChunk& chunk);  // and removes it
  void record(const BookedChunk& chunk, ChunkState state, SessionId lessee);  // in the journal
  void move(BookedChunk& chunk, ChunkState to);
  void charge_to(BookedChunk& chunk, ChunkState to, SessionId session, RequestId request);
  void uncharge(BookedChunk& chunk, ChunkState to);  // -> FREE or nobody's SCRUB
  void vacate(BookedChunk& chunk);
  void leave_job(const BookedSession& session);  // counts it no more
  void forget_if_done(SessionId id);
  [[nodiscard]] JournalOwner journal_owner(const Owner& owner) const;
  void check_chunks(std::vector<Tally>& jobs, std::vector<Tally>& sessions, Tally& nobodys,
                    Tally& slabs) const;

  Bytes pool_;
  Bytes chunk_;
  Bytes loose_;
  Bytes unsettled_{};
  Journal& journal_;
  std::vector<JobBook> jobs_;
  std::vector<BookedChunk> chunks_;  // by slot; grows with the highest slot used, as the sessions do
  std::vector<std::uint32_t> vacant_chunks_;
  std::vector<BookedSession> sessions_;  // by slot
  std::vector<std::uint32_t> vacant_sessions_;
  std::map<Past, std::vector<std::uint32_t>> free_;  // free chunks by what is known of them; none is empty
  Tally nobodys_;                                    // free, and in transit without a charge
  Tally slabs_;                                      // whosever they are; counted above, too
  std::uint64_t arrivals_ = 0;
};

}  // namespace apportion
