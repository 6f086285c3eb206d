// The recount: everything the book keeps as sums, added up again from the chunks and compared.
#include <algorithm>
#include <initializer_list>

#include "broker/book.hpp"
#include "shm/result.hpp"

namespace apportion {

namespace {

bool one_of(ChunkState state, std::initializer_list<ChunkState> states) {
  return std::find(states.begin(), states.end(), state) != states.end();
}

}  // namespace

void Book::check_chunks(std::vector<Tally>& jobs, std::vector<Tally>& sessions, Tally& nobodys,
                        Tally& slabs) const {
  for (std::uint32_t slot = 0; slot < chunks_.size(); ++slot) {
    const BookedChunk& chunk = chunks_[slot];
    if (chunk.state == ChunkState::vacant) {
      APPORTION_CHECK(!chunk.charge && !chunk.lessee);
      continue;
    }
    APPORTION_CHECK(chunk.id.slot() == slot && chunk.bytes.value > 0);
    const bool leased = one_of(
        chunk.state, {ChunkState::offered, ChunkState::held, ChunkState::returning, ChunkState::orphan});
    const bool ownerless = one_of(chunk.state, {ChunkState::free, ChunkState::making});
    APPORTION_CHECK(!leased || chunk.lessee);
    APPORTION_CHECK(!ownerless || !chunk.lessee);
    APPORTION_CHECK(static_cast<bool>(chunk.lessee) == static_cast<bool>(chunk.charge));
    APPORTION_CHECK(!chunk.past.clean || one_of(chunk.state, {ChunkState::free, ChunkState::offered}));
    APPORTION_CHECK(!chunk.past.bound || chunk.past.owner);
    APPORTION_CHECK(!chunk.past.clean || !chunk.past.stubborn);
    if (chunk.slab) slabs.add(chunk.state, chunk.bytes);
    if (!chunk.lessee) {
      nobodys.add(chunk.state, chunk.bytes);
      if (chunk.state == ChunkState::free) {
        const auto list = free_.find(chunk.past);
        APPORTION_CHECK(list != free_.end() && chunk.place < list->second.size() &&
                        list->second[chunk.place] == slot);
      }
      continue;
    }
    const BookedSession* session = find(chunk.lessee);
    APPORTION_CHECK(session != nullptr);
    APPORTION_CHECK(chunk.place < session->chunks.size() && session->chunks[chunk.place] == slot);
    APPORTION_CHECK(chunk.charge.bytes() == chunk.bytes && chunk.charge.to(job(session->job).account));
    // HELD is for sessions that are there; an orphan's chunks are ORPHAN, a dead one's ZOMBIE.
    APPORTION_CHECK(chunk.state != ChunkState::held || session->state == SessionPhase::attached);
    APPORTION_CHECK(session->state != SessionPhase::ended ||
                    one_of(chunk.state, {ChunkState::zombie, ChunkState::unmaking, ChunkState::returning,
                                         ChunkState::scrub}));
    // A process of another user may have kept an fd of it.
    APPORTION_CHECK(!chunk.past.bound || chunk.past.owner->uid == session->uid);
    jobs[session->job.value].add(chunk.state, chunk.bytes);
    sessions[session->id.slot()].add(chunk.state, chunk.bytes);
  }
}

void Book::check() const {
  std::vector<Tally> job_tallies(jobs_.size());
  std::vector<Tally> session_tallies(sessions_.size());
  Tally nobodys;
  Tally slabs;
  check_chunks(job_tallies, session_tallies, nobodys, slabs);
  APPORTION_CHECK(nobodys == nobodys_ && slabs == slabs_);

  std::vector<std::uint32_t> present(jobs_.size());
  for (std::size_t slot = 0; slot < sessions_.size(); ++slot) {
    const BookedSession& session = sessions_[slot];
    APPORTION_CHECK(session.tally == session_tallies[slot]);
    APPORTION_CHECK(session.chunks.size() == session.tally.chunks());
    if (session.state == SessionPhase::vacant) continue;
    APPORTION_CHECK(session.id.slot() == slot);
    APPORTION_CHECK(session.state != SessionPhase::ended || !session.chunks.empty());
    if (session.state != SessionPhase::ended) ++present[session.job.value];
  }
  for (std::size_t i = 0; i < jobs_.size(); ++i) {
    APPORTION_CHECK(jobs_[i].tally == job_tallies[i]);
    APPORTION_CHECK(jobs_[i].account.charged() == job_tallies[i].total());
    APPORTION_CHECK(jobs_[i].sessions == present[i] && (jobs_[i].arrival != 0) == (present[i] != 0));
  }
  std::size_t listed = 0;
  for (const auto& [owner, slots] : free_)
    listed += slots.size();
  std::size_t free_chunks = 0;
  for (const BookedChunk& chunk : chunks_)
    free_chunks += chunk.state == ChunkState::free ? 1 : 0;
  APPORTION_CHECK(listed == free_chunks);
  APPORTION_CHECK(pool_ == charged() + in_transit() + free());
}

}  // namespace apportion
