// The arena's lock for the fast path: held for some tens of nanoseconds, never across a driver call, a system
// call or a message.
//
// Promises: an uncontended lock and unlock make no system call, and unlock is a plain store. A thread that
// already holds it is told so instead of waiting for itself for ever (F48: a signal handler interrupted it).
// Waiters spin, then yield, then sleep for short times, so a holder that lost its processor gets it back.
#pragma once

#include <atomic>
#include <cstdint>

namespace apportion {

class ShortLock {
 public:
  // False: the calling thread holds it already.
  [[nodiscard]] bool lock() noexcept {
    const std::uint32_t self = thread_token();
    std::uint32_t expected = 0;
    if (holder_.compare_exchange_strong(expected, self, std::memory_order_acquire,
                                        std::memory_order_relaxed)) {
      return true;
    }
    return expected != self && lock_slow(self);
  }
  [[nodiscard]] bool held_by_this_thread() const noexcept {
    return holder_.load(std::memory_order_relaxed) == thread_token();
  }
  void unlock() noexcept { holder_.store(0, std::memory_order_release); }

  // A number of the calling thread, never 0 and never used twice in a process (it wraps after 2^32 threads).
  [[nodiscard]] static std::uint32_t thread_token() noexcept { return token_ != 0 ? token_ : make_token(); }

 private:
  static std::uint32_t make_token() noexcept;
  [[nodiscard]] bool lock_slow(std::uint32_t self) noexcept;

  // initial-exec: the first touch in a thread must not call malloc (F48).
  static __attribute__((tls_model("initial-exec"))) constinit thread_local std::uint32_t token_;

  std::atomic<std::uint32_t> holder_{0};
};

// Holds the lock for a scope, if it could be had.
class ShortGuard {
 public:
  explicit ShortGuard(ShortLock& lock) noexcept : lock_(lock), held_(lock.lock()) {}
  ~ShortGuard() {
    if (held_) lock_.unlock();
  }
  ShortGuard(const ShortGuard&) = delete;
  ShortGuard& operator=(const ShortGuard&) = delete;
  [[nodiscard]] bool held() const noexcept { return held_; }

 private:
  ShortLock& lock_;
  const bool held_;
};

}  // namespace apportion
