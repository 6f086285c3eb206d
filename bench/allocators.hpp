// The peers as replay() drives them (the library itself: library.hpp).
#pragma once

#include <cstdint>
#include <mutex>

#include "bench/peers/ref8.hpp"
#include "libclient/size_bins.hpp"

namespace apportion::bench {

// Handles, no lock, one range, streams ignored.
class Plain8 {
 public:
  using Handle = Ref8::Block;
  Plain8(std::uint64_t room_bytes, std::uint64_t blocks)
      : ref8_(static_cast<std::uint32_t>(room_bytes / kUnit), static_cast<std::uint32_t>(2 * blocks + 2)) {}
  Handle allocate(std::uint64_t bytes, std::uint64_t) noexcept {
    return ref8_.allocate(static_cast<std::uint32_t>((bytes + kUnit - 1) / kUnit));
  }
  void free(Handle block, std::uint64_t) noexcept { ref8_.free(block); }
  static bool none(Handle block) { return block.offset == Ref8::kNone; }

 private:
  Ref8 ref8_;
};

// The same for several threads: a mutex around each call.
class Locked8 {
 public:
  using Handle = Ref8::Block;
  Locked8(std::uint64_t room_bytes, std::uint64_t blocks) : plain_(room_bytes, blocks) {}
  Handle allocate(std::uint64_t bytes, std::uint64_t stream) {
    const std::lock_guard guard(mutex_);
    return plain_.allocate(bytes, stream);
  }
  void free(Handle block, std::uint64_t stream) {
    const std::lock_guard guard(mutex_);
    plain_.free(block, stream);
  }
  static bool none(Handle block) { return Plain8::none(block); }

 private:
  std::mutex mutex_;
  Plain8 plain_;
};

}  // namespace apportion::bench
