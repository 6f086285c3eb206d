// Small numbers for streams, so that a free block can say in a byte which stream may use it at once.
//
// Tag 0, clean: the GPU has passed the free; any stream may use the block. Tags 1 to 62: the stream that
// freed it may, others must wait. Tag 63, unknown: freed on a stream that cannot be told from others (more
// than 62 at a time, or the per-thread default stream, one handle for many streams): nobody may before a
// synchronise. A tag can also be a graph pool's: no stream's, but while a capture is bound to it, that
// stream's in place of its own. Not thread-safe; the arena's lock covers it.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace apportion {

// A stream's handle as the driver knows it (CUstream), 0 for the legacy default stream.
using Stream = std::uint64_t;
using Tag = std::uint8_t;

inline constexpr Tag kClean = 0;
inline constexpr Tag kUnknown = 63;
inline constexpr std::uint32_t kTags = 64;

class StreamTags {
 public:
  // The tag of a stream on which something is free; kClean where there is none.
  [[nodiscard]] Tag find(Stream stream) const {
    return stream == last_stream_ ? last_ : find_slow(canonical(stream));
  }
  // The tag to free under; kUnknown where the stream cannot have one.
  [[nodiscard]] Tag acquire(Stream stream) {
    const Tag tag = find(stream);
    return tag != kClean ? tag : make(canonical(stream));
  }
  // The stream is about to be destroyed, and its handle may come back as another stream: its blocks stay
  // tagged, but no stream matches them any more. Returns the tag, kClean where it had none.
  Tag forget(Stream stream);
  // No block carries the tag any more.
  void release(Tag tag) {
    used_ &= ~(std::uint64_t{1} << tag);
    named_ &= used_;
    pools_ &= used_;
    last_stream_ = kNone;
  }

  // Of these tags, those whose streams can have an event: alive, by the promise of stream_gone, and one
  // stream each. The legacy default stream, which is one a context, only with `legacy`.
  // And their streams.
  [[nodiscard]] std::uint64_t with_events(std::uint64_t tags, bool legacy = false) const;
  [[nodiscard]] Stream stream_of(Tag tag) const { return handles_[tag]; }

  // A tag for a graph pool; kUnknown where all are taken.
  [[nodiscard]] Tag make_pool();
  [[nodiscard]] bool is_pool(Tag tag) const { return (pools_ >> tag & 1U) != 0; }
  // The pool stands for `stream` until unbound: the stream is being captured.
  void bind(Tag pool, Stream stream);
  void unbind(Tag pool) { bound_ &= ~(std::uint64_t{1} << pool); }
  [[nodiscard]] bool is_bound(Tag pool) const { return (bound_ >> pool & 1U) != 0; }
  // The pool that stands for a stream now; kClean: none.
  [[nodiscard]] Tag pool_of(Stream stream) const;
  [[nodiscard]] bool capturing() const { return bound_ != 0; }

  static constexpr Stream kLegacy = 1;     // CU_STREAM_LEGACY, the same stream as 0
  static constexpr Stream kPerThread = 2;  // CU_STREAM_PER_THREAD, one handle for many
  [[nodiscard]] static Stream canonical(Stream stream) { return stream == kLegacy ? 0 : stream; }

 private:
  [[nodiscard]] Tag find_slow(Stream stream) const;
  [[nodiscard]] Tag make(Stream stream);
  [[nodiscard]] Tag take_vacant();

  std::uint64_t used_ = 0;   // tags that blocks may carry
  std::uint64_t named_ = 0;  // those of them that a stream can still match
  std::uint64_t pools_ = 0;  // those of them that are graph pools
  std::uint64_t bound_ = 0;  // those of these that stand for a stream
  std::array<Stream, kTags> handles_{};
  static constexpr Stream kNone = kPerThread;  // has no tag ever
  mutable Stream last_stream_ = kNone;  // what find() found last, while no pool is bound: the next one too
  mutable Tag last_ = kClean;
};

}  // namespace apportion
