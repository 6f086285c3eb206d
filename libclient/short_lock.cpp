#include "libclient/short_lock.hpp"

#include <sched.h>
#include <time.h>

namespace apportion {

constinit thread_local std::uint32_t ShortLock::token_ = 0;

namespace {
constexpr int kSpins = 64;
constexpr int kYields = 64;
constexpr timespec kPause{0, 50'000};

std::atomic<std::uint32_t> last_token{0};

void relax() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}
}  // namespace

std::uint32_t ShortLock::make_token() noexcept {
  std::uint32_t token = 0;
  while (token == 0)
    token = last_token.fetch_add(1, std::memory_order_relaxed) + 1;
  return token_ = token;
}

bool ShortLock::lock_slow(std::uint32_t self) noexcept {
  for (int round = 0;; ++round) {
    std::uint32_t holder = holder_.load(std::memory_order_relaxed);
    if (holder == 0 &&
        holder_.compare_exchange_weak(holder, self, std::memory_order_acquire, std::memory_order_relaxed)) {
      return true;
    }
    if (round < kSpins) {
      relax();
    } else if (round < kSpins + kYields) {
      ::sched_yield();
    } else {
      ::nanosleep(&kPause, nullptr);
    }
  }
}

}  // namespace apportion
