// The lock of growth, trim and everything else that talks to the driver or the broker: held as long as that
// takes.
//
// Promises: one thread at a time; a thread that holds it already is told so (F48) instead of waiting for
// itself.
#pragma once

#include <pthread.h>

#include <atomic>

namespace apportion {

class SlowLock {
 public:
  SlowLock() noexcept;
  ~SlowLock() { ::pthread_mutex_destroy(&mutex_); }
  SlowLock(const SlowLock&) = delete;
  SlowLock& operator=(const SlowLock&) = delete;

  // False: the calling thread holds it already.
  [[nodiscard]] bool lock() noexcept {
    if (::pthread_mutex_lock(&mutex_) != 0) return false;
    holder_.store(::pthread_self(), std::memory_order_relaxed);
    return true;
  }
  void unlock() noexcept {
    holder_.store(0, std::memory_order_relaxed);
    ::pthread_mutex_unlock(&mutex_);
  }
  // Async-signal-safe.
  [[nodiscard]] bool held_by_this_thread() const noexcept {
    return holder_.load(std::memory_order_relaxed) == ::pthread_self();
  }

 private:
  pthread_mutex_t mutex_;
  std::atomic<pthread_t> holder_{0};  // glibc's are addresses, never 0
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
