// The magazines of all threads of one arena: which are whose, and how others get in.
//
// Promises: a thread finds its own with two loads. A thread that sleeps or has died pins nothing: the arena
// claims its magazines and empties them, and a new thread takes over those of a dead one. The first kThreads
// threads alive have some; further ones use the arena's lock each time. Never: touches the range's blocks;
// the arena does, with its short lock.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

#include "libclient/magazine.hpp"
#include "libclient/owner_flag.hpp"
#include "libclient/short_lock.hpp"

namespace apportion {

// One thread's.
struct alignas(64) ThreadMagazines {
  static constexpr std::uint32_t kStreams = 4;       // at a time; others take turns
  static constexpr std::uint32_t kCapUnits = 16384;  // 8 MiB: what a thread may keep

  OwnerFlag flag;
  std::atomic<std::uint32_t> owner{0};  // ShortLock's token of the thread; 0: vacant
  std::atomic<std::int32_t> tid{0};     // to see whether it lives

  // Written by whoever owns or has claimed it; read by anybody.
  std::atomic<std::uint64_t> allocations{0};  // served
  std::atomic<std::uint64_t> frees{0};        // taken
  std::atomic<std::uint32_t> units{0};        // kept now, over all streams

  std::uint32_t published = 0;   // of `units`, as the arena knows it; with the short lock
  std::uint64_t calls_seen = 0;  // by the last sweep; whoever holds the arena's claims
  std::uint32_t near = 0;        // index of the magazine used last
  std::uint32_t turn = 0;        // counts streams that found no place
  std::array<Magazine, kStreams> streams;

  void add(std::uint32_t more) noexcept { units.store(kept() + more, std::memory_order_relaxed); }
  void subtract(std::uint32_t less) noexcept { units.store(kept() - less, std::memory_order_relaxed); }
  [[nodiscard]] std::uint32_t kept() const noexcept { return units.load(std::memory_order_relaxed); }
};

class Magazines {
 public:
  static constexpr std::uint32_t kThreads = 64;

  // kernel: OwnerBarrier's.
  explicit Magazines(bool kernel);

  // The calling thread's, or null: it has none (yet).
  [[nodiscard]] ThreadMagazines* find() const noexcept {
    const Near& near = near_[id_ % kNear];
    return near.id == id_ ? near.mine : nullptr;
  }
  // Whether find() would be in vain for ever.
  [[nodiscard]] bool asked() const noexcept { return near_[id_ % kNear].id == id_; }
  // Gets the calling thread some, with at most a few system calls, once a thread. Null where all are taken.
  // Async-signal-safe.
  ThreadMagazines* obtain(ShortLock& lock) noexcept;

  [[nodiscard]] const OwnerBarrier& barrier() const noexcept { return barrier_; }
  // Whether this thread is inside its own: then a signal handler asks.
  [[nodiscard]] bool inside() const noexcept {
    const ThreadMagazines* const mine = find();
    return mine != nullptr && mine->flag.inside();
  }
  // All that were ever used.
  [[nodiscard]] ThreadMagazines* begin() const noexcept { return threads_.get(); }
  [[nodiscard]] ThreadMagazines* end() const noexcept {
    return threads_.get() + used_.load(std::memory_order_acquire);
  }

 private:
  static constexpr std::uint32_t kNear = 4;  // sessions that a thread can use in turn and find at once
  struct Near {
    std::uint64_t id = 0;
    ThreadMagazines* mine = nullptr;
  };
  [[nodiscard]] ThreadMagazines* claim_place(std::uint32_t self, std::int32_t tid,
                                             std::int32_t dead) noexcept;

  const std::uint64_t id_;  // of this set: never used twice in a process
  const OwnerBarrier barrier_;
  struct Storage {
    void operator()(ThreadMagazines* places) const noexcept;
  };
  std::unique_ptr<ThreadMagazines, Storage>
      threads_;  // constructed up to used_, so that the rest costs nothing
  std::atomic<std::uint32_t> used_{0};
  // initial-exec as ShortLock's (F48).
  static __attribute__((tls_model("initial-exec"))) constinit thread_local std::array<Near, kNear> near_;
};

}  // namespace apportion
