#include "broker/book.hpp"

#include <algorithm>

#include "broker/journal_image.hpp"
#include "shm/result.hpp"

namespace apportion {

namespace {

bool one_of(ChunkState state, std::initializer_list<ChunkState> states) {
  return std::find(states.begin(), states.end(), state) != states.end();
}

}  // namespace

const char* to_text(ChunkState state) {
  switch (state) {
    case ChunkState::vacant:
      return "VACANT";
    case ChunkState::free:
      return "FREE";
    case ChunkState::offered:
      return "OFFERED";
    case ChunkState::held:
      return "HELD";
    case ChunkState::returning:
      return "RETURNING";
    case ChunkState::scrub:
      return "SCRUB";
    case ChunkState::making:
      return "MAKING";
    case ChunkState::unmaking:
      return "UNMAKING";
    case ChunkState::orphan:
      return "ORPHAN";
    case ChunkState::zombie:
      return "ZOMBIE";
  }
  return "UNKNOWN";
}

Book::Book(Bytes pool, Bytes chunk, const std::vector<std::string>& jobs, Journal& journal)
    : pool_(pool), chunk_(chunk), loose_(pool), journal_(journal) {
  const Result<JournalImage> image = read_journal(journal.memory());
  APPORTION_CHECK(image.ok());
  std::vector<bool> taken(journal.shape().job_slots);
  for (const JournalImage::Job& job : image->jobs)
    taken[job.slot] = true;
  for (const JournalImage::Damage& damage : image->damaged) {
    if (damage.table == JournalImage::Damage::Table::jobs) taken[damage.slot] = true;
  }
  jobs_.resize(jobs.size());
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    jobs_[i].name = jobs[i];
    const auto known = std::find_if(image->jobs.begin(), image->jobs.end(),
                                    [&](const JournalImage::Job& job) { return job.name == jobs[i]; });
    if (known != image->jobs.end()) {
      jobs_[i].journal_slot = known->slot;
      continue;
    }
    const auto slot = std::find(taken.begin(), taken.end(), false);
    APPORTION_CHECK(slot != taken.end());
    *slot = true;
    jobs_[i].journal_slot = static_cast<std::uint32_t>(slot - taken.begin());
    journal_.put_job(jobs_[i].journal_slot, jobs_[i].name);
  }
  // Slots of records that are in use or damaged are not handed out; low slots go first.
  const JournalShape& shape = journal.shape();
  std::vector<bool> used_chunks(shape.chunk_slots);
  std::vector<bool> used_sessions(shape.session_slots);
  for (const JournalImage::Lease& lease : image->chunks)
    used_chunks[lease.id.slot()] = true;
  for (const JournalImage::Session& session : image->sessions)
    used_sessions[session.id.slot()] = true;
  for (const JournalImage::Damage& damage : image->damaged) {
    if (damage.table == JournalImage::Damage::Table::chunks) used_chunks[damage.slot] = true;
    if (damage.table == JournalImage::Damage::Table::sessions) used_sessions[damage.slot] = true;
  }
  for (std::uint32_t slot = shape.chunk_slots; slot-- > 0;) {
    if (!used_chunks[slot]) vacant_chunks_.push_back(slot);
  }
  for (std::uint32_t slot = shape.session_slots; slot-- > 0;) {
    if (!used_sessions[slot]) vacant_sessions_.push_back(slot);
  }
}

Bytes Book::in_transit() const {
  return coming() + nobodys_.in(ChunkState::zombie) + unsettled_;
}

Bytes Book::coming() const {
  return nobodys_.in(ChunkState::making) + nobodys_.in(ChunkState::unmaking) + scrubbing();
}

Bytes Book::charged() const {
  Bytes sum{};
  for (const JobBook& job : jobs_)
    sum += job.account.charged();
  return sum;
}

Bytes Book::in_state(ChunkState state) const {
  Bytes sum = nobodys_.in(state);
  for (const JobBook& job : jobs_)
    sum += job.tally.in(state);
  return sum;
}

std::uint32_t Book::chunk_count() const {
  std::uint32_t count = nobodys_.chunks();
  for (const JobBook& job : jobs_)
    count += job.tally.chunks();
  return count;
}

const BookedChunk* Book::find(ChunkId id) const {
  if (id.slot() >= chunks_.size()) return nullptr;
  const BookedChunk& chunk = chunks_[id.slot()];
  return id && chunk.id == id && chunk.state != ChunkState::vacant ? &chunk : nullptr;
}

const BookedSession* Book::find(SessionId id) const {
  if (id.slot() >= sessions_.size()) return nullptr;
  const BookedSession& session = sessions_[id.slot()];
  return id && session.id == id && session.state != SessionPhase::vacant ? &session : nullptr;
}

BookedChunk& Book::at(ChunkId id) {
  const BookedChunk* chunk = find(id);
  APPORTION_CHECK(chunk != nullptr);
  return chunks_[id.slot()];
}

BookedSession& Book::at(SessionId id) {
  const BookedSession* session = find(id);
  APPORTION_CHECK(session != nullptr);
  return sessions_[id.slot()];
}

JournalOwner Book::journal_owner(const Owner& owner) const {
  return {job(owner.job).journal_slot, owner.uid};
}

// --- lists and tallies: a chunk is in the list of its session, or of the free chunks with its past

std::vector<std::uint32_t>& Book::list_of(const BookedChunk& chunk) {
  return chunk.lessee ? at(chunk.lessee).chunks : free_[chunk.past];
}

void Book::enter(BookedChunk& chunk) {
  if (chunk.slab) slabs_.add(chunk.state, chunk.bytes);
  if (chunk.lessee) {
    BookedSession& session = at(chunk.lessee);
    session.tally.add(chunk.state, chunk.bytes);
    JobBook& owner = job(session.job);
    owner.tally.add(chunk.state, chunk.bytes);
    owner.changed = true;
  } else {
    nobodys_.add(chunk.state, chunk.bytes);
  }
  if (!chunk.lessee && chunk.state != ChunkState::free) return;
  std::vector<std::uint32_t>& list = list_of(chunk);
  chunk.place = static_cast<std::uint32_t>(list.size());
  list.push_back(chunk.id.slot());
}

void Book::leave(BookedChunk& chunk) {
  if (chunk.slab) slabs_.remove(chunk.state, chunk.bytes);
  if (chunk.lessee) {
    BookedSession& session = at(chunk.lessee);
    session.tally.remove(chunk.state, chunk.bytes);
    JobBook& owner = job(session.job);
    owner.tally.remove(chunk.state, chunk.bytes);
    owner.changed = true;
  } else {
    nobodys_.remove(chunk.state, chunk.bytes);
  }
  if (!chunk.lessee && chunk.state != ChunkState::free) return;
  std::vector<std::uint32_t>& list = list_of(chunk);
  APPORTION_CHECK(chunk.place < list.size() && list[chunk.place] == chunk.id.slot());
  list[chunk.place] = list.back();
  chunks_[list[chunk.place]].place = chunk.place;
  list.pop_back();
  if (list.empty() && !chunk.lessee) free_.erase(chunk.past);
}

// The journal first: what the book says after a call, the next broker can read. Only a FREE chunk is written
// as clean: one that was offered may have been written to.
void Book::record(const BookedChunk& chunk, ChunkState state, SessionId lessee) {
  journal_.set_chunk(chunk.id, state, lessee ? std::optional(lessee) : std::nullopt,
                     {chunk.past.clean && state == ChunkState::free, chunk.past.bound, chunk.slab});
}

void Book::move(BookedChunk& chunk, ChunkState to) {
  record(chunk, to, chunk.lessee);
  leave(chunk);
  chunk.state = to;
  enter(chunk);
}

void Book::charge_to(BookedChunk& chunk, ChunkState to, SessionId session_id, RequestId request) {
  const BookedSession& session = at(session_id);
  APPORTION_CHECK(chunk.state == ChunkState::free && session.state != SessionPhase::ended);
  record(chunk, to, session_id);
  leave(chunk);
  chunk.charge = Charge(job(session.job).account, chunk.bytes);
  chunk.state = to;
  chunk.lessee = session_id;
  chunk.request = request;
  enter(chunk);
}

void Book::uncharge(BookedChunk& chunk, ChunkState to) {
  const SessionId lessee = chunk.lessee;
  record(chunk, to, {});
  leave(chunk);
  chunk.charge.give_back();
  chunk.state = to;
  chunk.lessee = {};
  chunk.request = {};
  chunk.sent = false;
  enter(chunk);
  if (lessee) forget_if_done(lessee);
}

void Book::vacate(BookedChunk& chunk) {
  journal_.set_chunk(chunk.id, ChunkState::vacant, std::nullopt);
  leave(chunk);
  const SessionId lessee = chunk.lessee;
  loose_ += chunk.bytes;
  vacant_chunks_.push_back(chunk.id.slot());
  chunk = BookedChunk{};  // ends the charge
  if (lessee) forget_if_done(lessee);
}

// --- making and unmaking

ChunkId Book::begin_make(Bytes bytes, bool slab) {
  APPORTION_CHECK(bytes.value > 0 && bytes <= loose_ && !vacant_chunks_.empty());
  const std::uint32_t slot = vacant_chunks_.back();
  vacant_chunks_.pop_back();
  if (slot >= chunks_.size()) chunks_.resize(slot + 1);
  BookedChunk& chunk = chunks_[slot];
  chunk.id = ChunkId::of(slot, journal_.chunk_generation(slot) + 1);
  chunk.bytes = bytes;
  chunk.state = ChunkState::making;
  chunk.slab = slab;
  journal_.put_chunk(chunk.id, bytes, slab);
  loose_ -= bytes;
  enter(chunk);
  return chunk.id;
}

void Book::made(ChunkId id) {
  BookedChunk& chunk = at(id);
  APPORTION_CHECK(chunk.state == ChunkState::making);
  move(chunk, ChunkState::free);
}

void Book::make_failed(ChunkId id) {
  BookedChunk& chunk = at(id);
  APPORTION_CHECK(chunk.state == ChunkState::making);
  vacate(chunk);
}

void Book::begin_unmake(ChunkId id) {
  BookedChunk& chunk = at(id);
  APPORTION_CHECK(one_of(chunk.state, {ChunkState::free, ChunkState::returning, ChunkState::scrub}));
  move(chunk, ChunkState::unmaking);
  chunk.past.clean = false;
}

void Book::unmade(ChunkId id) {
  BookedChunk& chunk = at(id);
  APPORTION_CHECK(chunk.state == ChunkState::unmaking);
  vacate(chunk);
}

void Book::unmake_failed(ChunkId id) {
  BookedChunk& chunk = at(id);
  APPORTION_CHECK(chunk.state == ChunkState::unmaking);
  move(chunk, ChunkState::zombie);
}

void Book::lost(ChunkId id) {
  BookedChunk& chunk = at(id);
  APPORTION_CHECK(chunk.slab && chunk.state != ChunkState::zombie);
  move(chunk, ChunkState::zombie);
  chunk.past.clean = false;
}

void Book::settled(ChunkId id) {
  BookedChunk& chunk = at(id);
  APPORTION_CHECK(chunk.state == ChunkState::zombie);
  vacate(chunk);
}

// --- leases

void Book::offer(ChunkId id, SessionId session_id, RequestId request) {
  charge_to(at(id), ChunkState::offered, session_id, request);
}

void Book::mark_sent(ChunkId id) {
  BookedChunk& chunk = at(id);
  APPORTION_CHECK(chunk.state == ChunkState::offered);
  chunk.sent = true;
}

void Book::roll_back(ChunkId id) {
  BookedChunk& chunk = at(id);
  APPORTION_CHECK(chunk.state == ChunkState::offered);
  uncharge(chunk, ChunkState::free);
}

void Book::hold(ChunkId id) {
  BookedChunk& chunk = at(id);
  APPORTION_CHECK(one_of(chunk.state, {ChunkState::offered, ChunkState::orphan}));
  move(chunk, ChunkState::held);
  chunk.past.clean = false;
  chunk.request = {};
  chunk.sent = false;
}

void Book::begin_return(ChunkId id) {
  BookedChunk& chunk = at(id);
  APPORTION_CHECK(one_of(chunk.state, {ChunkState::offered, ChunkState::held, ChunkState::orphan}));
  move(chunk, ChunkState::returning);
  chunk.past.clean = false;
}

void Book::put_back(ChunkId id, bool bind) {
  BookedChunk& chunk = at(id);
  APPORTION_CHECK(chunk.state == ChunkState::returning);
  const BookedSession& session = at(chunk.lessee);
  const Owner owner{session.job, session.uid};
  // The owner before FREE: a crash between the two leaves a RETURNING chunk of that same owner.
  journal_.set_owner(id, journal_owner(owner));
  chunk.past = {owner, false, chunk.past.bound || bind, chunk.past.stubborn};
  uncharge(chunk, ChunkState::free);
}

void Book::bury(ChunkId id) {
  BookedChunk& chunk = at(id);
  APPORTION_CHECK(
      one_of(chunk.state, {ChunkState::offered, ChunkState::held, ChunkState::orphan, ChunkState::scrub}));
  move(chunk, ChunkState::zombie);
  chunk.past.clean = false;
}

std::optional<ChunkId> Book::pick_free(const Rank& rank) const {
  const std::vector<std::uint32_t>* best = nullptr;
  int lowest = 0;
  for (const auto& [past, slots] : free_) {
    const std::optional<int> ranked = rank(past);
    if (!ranked || (best != nullptr && *ranked >= lowest)) continue;
    best = &slots;
    lowest = *ranked;
  }
  if (best == nullptr) return std::nullopt;
  return chunks_[best->back()].id;
}

}  // namespace apportion
