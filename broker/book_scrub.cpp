// The book's chunks while they are overwritten: SCRUB, for nobody, for a grant, or on the way back.
#include <utility>

#include "broker/book.hpp"
#include "shm/result.hpp"

namespace apportion {

void Book::begin_scrub(ChunkId id) {
  BookedChunk& chunk = at(id);
  APPORTION_CHECK(chunk.state == ChunkState::free || chunk.state == ChunkState::returning);
  move(chunk, ChunkState::scrub);
}

void Book::begin_scrub_for(ChunkId id, SessionId session, RequestId request) {
  charge_to(at(id), ChunkState::scrub, session, request);
}

void Book::leave_scrub_alone(ChunkId id) {
  BookedChunk& chunk = at(id);
  APPORTION_CHECK(chunk.state == ChunkState::scrub && chunk.lessee);
  uncharge(chunk, ChunkState::scrub);
}

// F38: one store makes it FREE and clean, and it comes after the helper's word.
void Book::scrubbed_free(ChunkId id) {
  BookedChunk& chunk = at(id);
  APPORTION_CHECK(chunk.state == ChunkState::scrub && !chunk.lessee);
  chunk.past.clean = true;
  chunk.past.stubborn = false;
  move(chunk, ChunkState::free);
}

void Book::scrubbed_offer(ChunkId id) {
  BookedChunk& chunk = at(id);
  APPORTION_CHECK(chunk.state == ChunkState::scrub && chunk.lessee);
  chunk.past.clean = true;
  chunk.past.stubborn = false;
  move(chunk, ChunkState::offered);
}

void Book::scrub_failed(ChunkId id) {
  BookedChunk& chunk = at(id);
  APPORTION_CHECK(chunk.state == ChunkState::scrub);
  uncharge(chunk, ChunkState::free);
}

void Book::mark_stubborn(ChunkId id) {
  BookedChunk& chunk = at(id);
  APPORTION_CHECK(chunk.state == ChunkState::free && !chunk.past.clean);
  leave(chunk);  // the list of its old past
  chunk.past.stubborn = true;
  enter(chunk);
  // The last to be picked of its kind, too.
  std::vector<std::uint32_t>& list = list_of(chunk);
  std::swap(list.front(), list[chunk.place]);
  chunks_[list[chunk.place]].place = chunk.place;
  chunk.place = 0;
}

}  // namespace apportion
