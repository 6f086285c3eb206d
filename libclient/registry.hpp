// Which sessions this process has, by the handles its user holds.
//
// Promises: a handle that was detached, or that never was one, is not found, whatever its value; finding one
// is two loads. In a child forked after the first session every handle is gone and nothing can be attached
// (F06): CUDA does not survive fork. Thread-safe, but a handle must not be used while it is removed.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

#include "libclient/client.hpp"
#include "libclient/short_lock.hpp"

namespace apportion {

class Registry {
 public:
  using Handle = std::uintptr_t;  // generation x kSlots + slot; never 0
  static constexpr std::uintptr_t kSlots = 64;

  // The process's own. Never destroyed: calls from static destructors after main find it (F48).
  [[nodiscard]] static Registry& instance() noexcept { return instance_; }

  [[nodiscard]] Client* find(Handle handle) const noexcept {
    const Slot& slot = slots_[handle % kSlots];
    return handle != 0 && slot.handle.load(std::memory_order_acquire) == handle
               ? slot.client.load(std::memory_order_relaxed)
               : nullptr;
  }
  // Errors: busy (all slots are taken); not_attached (a forked child).
  [[nodiscard]] Result<Handle> add(std::unique_ptr<Client> client);
  // A session that is being detached: not found from here on, by a second detach either. Nothing where the
  // handle is not found. Then either the session goes on, or it is over and the caller's to delete.
  [[nodiscard]] Client* hide(Handle handle);
  void show(Handle handle);
  [[nodiscard]] std::unique_ptr<Client> remove(Handle handle);

  // Why a handle is not found. Async-signal-safe.
  [[nodiscard]] const char* not_attached() const noexcept;
  // Whether this thread is changing the registry: then a signal handler asks. Async-signal-safe.
  [[nodiscard]] bool interrupted() const noexcept { return lock_.held_by_this_thread(); }
  [[nodiscard]] bool in_forked_child() const { return forked_.load(std::memory_order_relaxed); }

 private:
  struct Slot {
    std::atomic<Handle> handle{0};         // 0: not to be found
    std::atomic<Client*> client{nullptr};  // null: vacant
    std::uintptr_t generation = 0;
  };

  constexpr Registry() = default;
  friend void abandon_sessions_in_child();

  ShortLock lock_;  // of all that changes a slot; not taken in a child
  std::array<Slot, kSlots> slots_;
  std::atomic<bool> attached_ever_{false};  // CUDA has been started here
  std::atomic<bool> forked_{false};

  static Registry instance_;
};

}  // namespace apportion
