#include "libclient/owner_flag.hpp"

#include <linux/membarrier.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace apportion {

namespace {
constexpr int kYields = 2000;

bool membarrier(int command) noexcept {
  return ::syscall(SYS_membarrier, command, 0, 0) == 0;
}
}  // namespace

OwnerBarrier::OwnerBarrier(bool kernel) noexcept
    : kernel_(kernel && membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED)) {}

bool OwnerBarrier::run() const noexcept {
  return !kernel_ || membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
}

bool OwnerFlag::wait_left() const noexcept {
  for (int round = 0; round < kYields; ++round) {
    if (inside_.load(std::memory_order_seq_cst) == 0) return true;
    ::sched_yield();
  }
  return false;
}

bool OwnerFlag::enter_stale() noexcept {
  if (claims_.load(std::memory_order_acquire) != kStale) return false;
  if (inside_.load(std::memory_order_relaxed) != 0) return false;
  inside_.store(1, std::memory_order_seq_cst);
  if (claims_.load(std::memory_order_seq_cst) != kStale) {
    leave();
    return false;
  }
  claims_.fetch_and(~kStale, std::memory_order_seq_cst);
  return true;
}

}  // namespace apportion
