// The book's sessions: opened, orphaned, ended, and those a predecessor left.
#include <utility>

#include "broker/book.hpp"
#include "shm/result.hpp"

namespace apportion {

std::optional<SessionId> Book::open(JobIndex job_index, const JournalSession& fields, std::string label) {
  if (vacant_sessions_.empty()) return std::nullopt;
  const std::uint32_t slot = vacant_sessions_.back();
  vacant_sessions_.pop_back();
  if (slot >= sessions_.size()) sessions_.resize(slot + 1);
  BookedSession& session = sessions_[slot];
  session = BookedSession{};
  session.id = SessionId::of(slot, journal_.session_generation(slot) + 1);
  session.state = SessionPhase::attached;
  session.job = job_index;
  session.token = fields.token;
  session.uid = fields.uid;
  session.pid = fields.pid;
  session.start_time = fields.start_time;
  session.reclaimable = fields.reclaimable;
  session.label = std::move(label);
  JournalSession record = fields;
  record.job_slot = job(job_index).journal_slot;
  journal_.put_session(session.id, record);
  JobBook& owner = job(job_index);
  if (owner.sessions++ == 0) owner.arrival = ++arrivals_;
  owner.changed = true;
  return session.id;
}

void Book::orphan(SessionId id) {
  BookedSession& session = at(id);
  APPORTION_CHECK(session.state == SessionPhase::attached);
  journal_.set_session(id, SessionPhase::orphan);
  session.state = SessionPhase::orphan;
  const std::vector<std::uint32_t> slots = session.chunks;
  for (const std::uint32_t slot : slots) {
    if (chunks_[slot].state == ChunkState::held) move(chunks_[slot], ChunkState::orphan);
  }
  job(session.job).changed = true;
}

void Book::attach_again(SessionId id) {
  BookedSession& session = at(id);
  APPORTION_CHECK(session.state == SessionPhase::orphan);
  journal_.set_session(id, SessionPhase::attached);
  session.state = SessionPhase::attached;
  job(session.job).changed = true;
}

void Book::end(SessionId id) {
  BookedSession& session = at(id);
  APPORTION_CHECK(session.state == SessionPhase::attached || session.state == SessionPhase::orphan);
  journal_.set_session(id, SessionPhase::ended);
  session.state = SessionPhase::ended;
  leave_job(session);
  forget_if_done(id);
}

void Book::leave_job(const BookedSession& session) {
  JobBook& owner = job(session.job);
  if (--owner.sessions == 0) owner.arrival = 0;
  owner.changed = true;
}

void Book::forget_if_done(SessionId id) {
  BookedSession& session = at(id);
  if (session.state != SessionPhase::ended || !session.chunks.empty()) return;
  journal_.set_session(id, SessionPhase::vacant);
  vacant_sessions_.push_back(id.slot());
  session = BookedSession{};
}

// --- what a predecessor left

void Book::adopt_session(SessionId id, JobIndex job_index, const JournalSession& fields) {
  if (id.slot() >= sessions_.size()) sessions_.resize(id.slot() + 1);
  BookedSession& session = sessions_[id.slot()];
  APPORTION_CHECK(session.state == SessionPhase::vacant);
  session.id = id;
  session.state = SessionPhase::orphan;
  session.job = job_index;
  session.token = fields.token;
  session.uid = fields.uid;
  session.pid = fields.pid;
  session.start_time = fields.start_time;
  session.reclaimable = fields.reclaimable;
  JobBook& owner = job(job_index);
  if (owner.sessions++ == 0) owner.arrival = ++arrivals_;
}

void Book::adopt_chunk(ChunkId id, Bytes bytes, SessionId session_id, bool slab) {
  if (id.slot() >= chunks_.size()) chunks_.resize(id.slot() + 1);
  BookedChunk& chunk = chunks_[id.slot()];
  APPORTION_CHECK(chunk.state == ChunkState::vacant && bytes <= loose_);
  chunk.id = id;
  chunk.bytes = bytes;
  chunk.state = ChunkState::orphan;
  chunk.slab = slab;
  chunk.lessee = session_id;
  chunk.charge = Charge(job(at(session_id).job).account, bytes);
  loose_ -= bytes;
  enter(chunk);
}

void Book::leave_unsettled(SessionId id) {
  const std::vector<std::uint32_t> slots = at(id).chunks;
  for (const std::uint32_t slot : slots) {
    BookedChunk& chunk = chunks_[slot];
    APPORTION_CHECK(chunk.state == ChunkState::orphan);
    journal_.set_chunk(chunk.id, ChunkState::zombie, id, {.slab = chunk.slab});
    leave(chunk);
    unsettled_ += chunk.bytes;
    chunk = BookedChunk{};  // ends the charge; the journal's slot stays taken
  }
  if (slots.empty()) return end(id);
  journal_.set_session(id, SessionPhase::ended);
  BookedSession& session = at(id);
  leave_job(session);
  session = BookedSession{};  // the journal's slot stays taken
}

void Book::leave_rest_unsettled() {
  unsettled_ += loose_;
  loose_ = {};
}

}  // namespace apportion
