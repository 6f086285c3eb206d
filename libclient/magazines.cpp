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

std::optional<Magazines::Ended> Magazines::ended(const ThreadMagazines& place) noexcept {
  const std::uint32_t token = place.owner.load(std::memory_order_acquire);
  const std::int32_t tid = place.tid.load(std::memory_order_relaxed);
  if (!is_dead(tid)) return std::nullopt;
  return Ended{token, tid};
}

ThreadMagazines* Magazines::claim_place(std::uint32_t self, std::int32_t tid,
                                        const std::optional<Ended>& dead) noexcept {
  ThreadMagazines* found = nullptr;
  for (ThreadMagazines& place : *this) {
    const std::uint32_t owner = place.owner.load(std::memory_order_relaxed);
    if (owner == self) return &place;
    if (dead && owner == dead->token && !place.abandoned && !place.flag.inside()) found = &place;
  }
  if (const std::uint32_t used = used_.load(std::memory_order_relaxed); used < kThreads && !dead) {
    found = new (threads_.get() + used) ThreadMagazines;
    found->tid.store(tid, std::memory_order_relaxed);
    found->owner.store(self, std::memory_order_release);
    used_.store(used + 1, std::memory_order_release);
    return found;
  }
  if (found == nullptr) return nullptr;
  found->tid.store(tid, std::memory_order_relaxed);
  found->owner.store(self, std::memory_order_release);
  return found;
}

ThreadMagazines* Magazines::obtain(ShortLock& lock) noexcept {
  const std::uint32_t self = ShortLock::thread_token();
  const auto tid = static_cast<std::int32_t>(::syscall(SYS_gettid));
  ThreadMagazines* mine = nullptr;
  {
    const ShortGuard guard(lock);
    if (!guard.held() || closed_) return nullptr;
    mine = claim_place(self, tid, std::nullopt);
  }
  // Outside the lock: a system call a place.
  for (ThreadMagazines* place = begin(); mine == nullptr && place != end(); ++place) {
    const std::optional<Ended> dead = ended(*place);
    if (!dead) continue;
    const ShortGuard guard(lock);
    if (!guard.held() || closed_) return nullptr;
    mine = claim_place(self, tid, dead);
  }
  near_[id_ % kNear] = {id_, mine};
  return mine;
}

}  // namespace apportion
