#include "libclient/magazines.hpp"

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <new>
#include <type_traits>

namespace apportion {

constinit thread_local std::array<Magazines::Near, Magazines::kNear> Magazines::near_{};

namespace {
std::atomic<std::uint64_t> last_id{0};

bool is_dead(std::int32_t tid) noexcept {
  return ::syscall(SYS_tgkill, ::getpid(), tid, 0) != 0 && errno == ESRCH;
}
}  // namespace

Magazines::Magazines(bool kernel)
    : id_(last_id.fetch_add(1, std::memory_order_relaxed) + 1),
      barrier_(kernel),
      threads_(static_cast<ThreadMagazines*>(
          ::operator new (sizeof(ThreadMagazines) * kThreads, std::align_val_t{alignof(ThreadMagazines)}))) {}

void Magazines::Storage::operator()(ThreadMagazines* places) const noexcept {
  static_assert(std::is_trivially_destructible_v<ThreadMagazines>);
  ::operator delete (places, std::align_val_t{alignof(ThreadMagazines)});
}

// With the arena's short lock. Its own place, a vacant one, or the one of `dead`, as it was left.
ThreadMagazines* Magazines::claim_place(std::uint32_t self, std::int32_t tid, std::int32_t dead) noexcept {
  ThreadMagazines* found = nullptr;
  for (ThreadMagazines& place : *this) {
    if (place.owner.load(std::memory_order_relaxed) == self) return &place;
    // A thread that ended inside a call (it was cancelled) has left it half done: nobody's for ever.
    if (place.tid.load(std::memory_order_relaxed) == dead && !place.flag.inside()) found = &place;
  }
  if (const std::uint32_t used = used_.load(std::memory_order_relaxed); used < kThreads && dead == 0) {
    found = new (threads_.get() + used) ThreadMagazines;
    used_.store(used + 1, std::memory_order_release);
  }
  if (found == nullptr) return nullptr;
  found->owner.store(self, std::memory_order_relaxed);
  found->tid.store(tid, std::memory_order_relaxed);
  return found;
}

ThreadMagazines* Magazines::obtain(ShortLock& lock) noexcept {
  const std::uint32_t self = ShortLock::thread_token();
  const auto tid = static_cast<std::int32_t>(::syscall(SYS_gettid));
  ThreadMagazines* mine = nullptr;
  {
    const ShortGuard guard(lock);
    if (!guard.held() || closed_) return nullptr;
    mine = claim_place(self, tid, 0);
  }
  // Outside the lock: a system call a place.
  for (ThreadMagazines* place = begin(); mine == nullptr && place != end(); ++place) {
    const std::int32_t owner = place->tid.load(std::memory_order_relaxed);
    if (!is_dead(owner)) continue;
    const ShortGuard guard(lock);
    if (!guard.held() || closed_) return nullptr;
    mine = claim_place(self, tid, owner);
  }
  near_[id_ % kNear] = {id_, mine};
  return mine;
}

}  // namespace apportion
