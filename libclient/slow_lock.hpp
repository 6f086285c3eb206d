// The lock of growth, trim and everything else that talks to the driver or the broker: held as long as that
// takes.
//
// Promises: one thread at a time; a thread that holds it already is told so (F48) instead of waiting for
// itself.
#pragma once

#include <pthread.h>

namespace apportion {

class SlowLock {
 public:
  SlowLock() noexcept;
  ~SlowLock() { ::pthread_mutex_destroy(&mutex_); }
  SlowLock(const SlowLock&) = delete;
  SlowLock& operator=(const SlowLock&) = delete;

  // False: the calling thread holds it already.
  [[nodiscard]] bool lock() noexcept { return ::pthread_mutex_lock(&mutex_) == 0; }
  void unlock() noexcept { ::pthread_mutex_unlock(&mutex_); }

 private:
  pthread_mutex_t mutex_;
};

// Holds the lock for a scope, if it could be had.
class SlowGuard {
 public:
  explicit SlowGuard(SlowLock& lock) noexcept : lock_(lock), held_(lock.lock()) {}
  ~SlowGuard() {
    if (held_) lock_.unlock();
  }
  SlowGuard(const SlowGuard&) = delete;
  SlowGuard& operator=(const SlowGuard&) = delete;
  [[nodiscard]] bool held() const noexcept { return held_; }

 private:
  SlowLock& lock_;
  const bool held_;
};

}  // namespace apportion
