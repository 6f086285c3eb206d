// What the files of the slow path share: the short lock between calls of the source, and what its answers
// mean.
#pragma once

#include <new>

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

inline Error no_host_memory() {
  return {Errc::out_of_memory, "no host memory"};  // so short that it is no allocation itself
}

// Calls the source. F31: where the host has no memory for the call, it has mapped and unmapped nothing.
template <typename Call>
auto shielded(Call&& call) -> decltype(call()) {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return no_host_memory();
  }
}

// Whether giving back what this process holds idle could turn the answer.
inline bool out_of_room(const Error& error) {
  return error.code == Errc::quota || error.code == Errc::out_of_memory;
}

}  // namespace apportion
