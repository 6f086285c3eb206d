// Graph pools: what a captured graph uses stays as it is until its pool is released.
//
// A graph writes its blocks whenever it is launched, on streams that nobody here sees; so a block used under
// capture must not become another stream's when it is freed, nor its chunk be unmapped. A pool is a tag of
// its own for all of these.
#include "libclient/arena.hpp"

namespace apportion {

Tag Arena::find_pool(std::uint64_t pool) const {
  for (std::uint32_t tag = 1; tag < kUnknown; ++tag) {
    if (pool != 0 && pool_names_[tag] == pool) return static_cast<Tag>(tag);
  }
  return kClean;
}

Result<std::uint64_t> Arena::graph_pool_begin(Stream stream, std::uint64_t pool) {
  stream = StreamTags::canonical(stream);
  if (stream == 0 || stream == StreamTags::kPerThread || stream == kNoStream) {
    return Error{Errc::invalid, "a default stream cannot have a graph pool; capture a stream of its own"};
  }
  if (holds_a_lock()) return arena_busy();
  const SlowGuard asks(asks_);
  const SlowGuard claims(claims_);
  if (!asks.held() || !claims.held()) return arena_busy();
  // No magazine may keep the stream's blocks from here on.
  std::uint64_t missed = 0;
  const std::uint64_t claimed = claim_all_magazines(missed);
  const Result<std::uint64_t> bound = [&]() -> Result<std::uint64_t> {
    if (missed != 0) return Error{Errc::busy, "a thread was stopped inside an allocation; try again"};
    const ShortGuard guard(lock_);
    APPORTION_CHECK(guard.held());
    if (tags_.pool_of(stream) != kClean) {
      return Error{Errc::invalid, "this stream has a graph pool bound already; end that first"};
    }
    Tag tag = find_pool(pool);
    if (pool != 0 && tag == kClean) return Error{Errc::invalid, "no such graph pool: released, or never one"};
    if (tag != kClean && tags_.is_bound(tag)) {
      return Error{Errc::busy, "another capture is bound to this graph pool; use one pool a capture"};
    }
    if (tag == kClean) {
      tag = tags_.make_pool();
      if (tag == kUnknown) return Error{Errc::busy, "too many graph pools and streams; release one"};
      if (!small_.blocks.make_pool(tag) || !large_.blocks.make_pool(tag)) {
        if (small_.blocks.is_pool(tag)) small_.blocks.release_pool(tag, epoch_);
        tags_.release(tag);
        return Error{Errc::out_of_memory, "no host memory"};
      }
      pool_names_[tag] = ++last_pool_;
    }
    for (ThreadMagazines& thread : magazines_) {
      if (thread.abandoned) continue;
      for (Magazine& magazine : thread.streams) {
        if (magazine.stream == stream) flush_all(thread, magazine);
      }
    }
    tags_.bind(tag, stream);
    return pool_names_[tag];
  }();
  unclaim_all_magazines(claimed);
  return bound;
}

Status Arena::graph_pool_end(Stream stream) {
  const ShortGuard guard(lock_);
  if (!guard.held()) return arena_busy();
  const Tag tag = tags_.pool_of(stream);
  if (tag == kClean) return Error{Errc::invalid, "no graph pool is bound to this stream"};
  tags_.unbind(tag);
  return Done{};
}

Status Arena::graph_pool_release(std::uint64_t pool) {
  const ShortGuard guard(lock_);
  if (!guard.held()) return arena_busy();
  const Tag tag = find_pool(pool);
  if (tag == kClean) return Error{Errc::invalid, "no such graph pool: released, or never one"};
  if (tags_.is_bound(tag)) return Error{Errc::busy, "a capture is bound to this graph pool; end that first"};
  small_.blocks.release_pool(tag, epoch_);
  large_.blocks.release_pool(tag, epoch_);
  pool_names_[tag] = 0;
  tags_.release(tag);
  return Done{};
}

}  // namespace apportion
