#include "libclient/stream_tags.hpp"

namespace apportion {

Tag StreamTags::find_slow(Stream stream) const {
  for (std::uint64_t left = named_; left != 0; left &= left - 1) {
    const auto tag = static_cast<Tag>(std::countr_zero(left));
    if (handles_[tag] == stream) return last_ = tag;
  }
  return kClean;
}

Tag StreamTags::make(Stream stream) {
  if (stream == kPerThread) return kUnknown;
  constexpr std::uint64_t kUsable = ~(std::uint64_t{1} << kClean | std::uint64_t{1} << kUnknown);
  const std::uint64_t vacant = ~used_ & kUsable;
  if (vacant == 0) return kUnknown;
  const auto tag = static_cast<Tag>(std::countr_zero(vacant));
  used_ |= std::uint64_t{1} << tag;
  named_ |= std::uint64_t{1} << tag;
  handles_[tag] = stream;
  return last_ = tag;
}

Tag StreamTags::forget(Stream stream) {
  const Tag tag = find(stream);
  if (tag != kClean) named_ &= ~(std::uint64_t{1} << tag);
  return tag;
}

}  // namespace apportion
