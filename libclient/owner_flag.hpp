// A flag that makes one thread the owner of something it uses all the time, and lets others have it while
// that thread is elsewhere, asleep or dead.
//
// The owner pays two plain stores and a load: no atomic read-modify-write, no fence. Whoever wants in pays
// for both: a claim, then a barrier that the kernel runs on every processor of the process
// (membarrier PRIVATE_EXPEDITED), then a look at the owner's flag. SYNC POINT: 1. claim, 2. barrier, 3. the
// owner is inside, or will see the claim. Where the kernel has no membarrier (or a sandbox forbids it), the
// owner's store is a full one. Claims are made by one thread at a time.
//
// enter() is refused inside enter() on the same thread: a signal handler that interrupted the owner (F48).
#pragma once

#include <atomic>
#include <cstdint>

namespace apportion {

// Which barrier the flags of a set share. Fixed while any of them is used.
class OwnerBarrier {
 public:
  // kernel: use membarrier where this process may. Asks the kernel; no more.
  explicit OwnerBarrier(bool kernel) noexcept;
  [[nodiscard]] bool kernel() const noexcept { return kernel_; }
  // After claims, before looking at owners. False: it could not be had, and nothing is known of any owner.
  [[nodiscard]] bool run() const noexcept;

 private:
  bool kernel_;
};

class OwnerFlag {
 public:
  // The owner. False: stay out, somebody has or wants it, or this is a handler inside the owner's own use.
  [[nodiscard]] bool enter(const OwnerBarrier& barrier) noexcept {
    if (inside_.load(std::memory_order_relaxed) != 0) return false;
    if (barrier.kernel()) {
      inside_.store(1, std::memory_order_relaxed);
      std::atomic_signal_fence(std::memory_order_seq_cst);
    } else {
      inside_.store(1, std::memory_order_seq_cst);
    }
    if (claims_.load(std::memory_order_seq_cst) == 0) [[likely]]
      return true;
    leave();
    return false;
  }
  void leave() noexcept {
    std::atomic_signal_fence(std::memory_order_seq_cst);
    inside_.store(0, std::memory_order_release);
  }
  // By any thread: whether the owner is inside at this moment. Of use to the owner's signal handlers.
  [[nodiscard]] bool inside() const noexcept { return inside_.load(std::memory_order_acquire) != 0; }

  // Others: claim, OwnerBarrier::run, then wait until the owner has left. False: it stayed inside for long
  // (it was stopped there, or one of its signal handlers runs long), and must be left alone.
  void claim() noexcept { claims_.fetch_or(kClaimed, std::memory_order_seq_cst); }
  [[nodiscard]] bool wait_left() const noexcept;
  void unclaim() noexcept { claims_.fetch_and(~kClaimed, std::memory_order_release); }

  // For an owner that could not be waited for: it stays out until it has dealt with what this stands for.
  void mark_stale() noexcept { claims_.fetch_or(kStale, std::memory_order_seq_cst); }
  // The owner enters if that is all that keeps it out, and then it must deal with it.
  [[nodiscard]] bool enter_stale() noexcept;

 private:
  static constexpr std::uint32_t kClaimed = 1;
  static constexpr std::uint32_t kStale = 2;

  std::atomic<std::uint32_t> inside_{0};
  std::atomic<std::uint32_t> claims_{0};
};

}  // namespace apportion
