// What the files of the arena's slow path share: its use of the short lock. Included by arena_slow.cpp,
// arena_exact.cpp and arena_give.cpp alone.
#pragma once

#include "libclient/short_lock.hpp"
#include "shm/result.hpp"

namespace apportion {

// The short lock for the slow path. It can always be had: a handler that interrupted its holder was turned
// away before it got the slow lock.
class Locked {
 public:
  explicit Locked(ShortLock& lock) noexcept : lock_(lock) { APPORTION_CHECK(lock_.lock()); }
  ~Locked() { lock_.unlock(); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  ShortLock& lock_;
};

// Whether giving back what this process holds idle could turn the answer.
inline bool out_of_room(const Error& error) {
  return error.code == Errc::quota || error.code == Errc::out_of_memory;
}

}  // namespace apportion
