#include "libclient/stream_tags.hpp"

namespace apportion {

Tag StreamTags::find_slow(Stream stream) const {
  if (bound_ != 0) {
    if (const Tag pool = pool_of(stream); pool != kClean) return pool;
  }
  for (std::uint64_t left = named_; left != 0; left &= left - 1) {
    const auto tag = static_cast<Tag>(std::countr_zero(left));
    if (handles_[tag] != stream) continue;
    if (bound_ == 0) {
      last_stream_ = stream;
      last_ = tag;
    }
    return tag;
  }
  return kClean;
}

Tag StreamTags::take_vacant() {
  constexpr std::uint64_t kUsable = ~(std::uint64_t{1} << kClean | std::uint64_t{1} << kUnknown);
  const std::uint64_t vacant = ~used_ & kUsable;
  if (vacant == 0) return kUnknown;
  const auto tag = static_cast<Tag>(std::countr_zero(vacant));
  used_ |= std::uint64_t{1} << tag;
  return tag;
}

Tag StreamTags::make(Stream stream) {
  if (stream == kPerThread) return kUnknown;
  const Tag tag = take_vacant();
  if (tag == kUnknown) return tag;
  named_ |= std::uint64_t{1} << tag;
  handles_[tag] = stream;
  return tag;
}

std::uint64_t StreamTags::with_events(std::uint64_t tags, bool legacy) const {
  tags &= named_;
  for (std::uint64_t left = tags; left != 0; left &= left - 1) {
    const int tag = std::countr_zero(left);
    if ((handles_[tag] == 0 && !legacy) || pool_of(handles_[tag]) != kClean)
      tags &= ~(std::uint64_t{1} << tag);
  }
  return tags;
}

Tag StreamTags::make_pool() {
  const Tag tag = take_vacant();
  if (tag != kUnknown) pools_ |= std::uint64_t{1} << tag;
  return tag;
}

void StreamTags::bind(Tag pool, Stream stream) {
  last_stream_ = kNone;
  bound_ |= std::uint64_t{1} << pool;
  handles_[pool] = canonical(stream);
}

Tag StreamTags::pool_of(Stream stream) const {
  stream = canonical(stream);
  for (std::uint64_t left = bound_; left != 0; left &= left - 1) {
    const auto tag = static_cast<Tag>(std::countr_zero(left));
    if (handles_[tag] == stream) return tag;
  }
  return kClean;
}

Tag StreamTags::forget(Stream stream) {
  if (const Tag pool = pool_of(stream); pool != kClean) unbind(pool);
  const Tag tag = find(stream);
  last_stream_ = kNone;
  if (tag != kClean) named_ &= ~(std::uint64_t{1} << tag);
  return tag;
}

}  // namespace apportion
