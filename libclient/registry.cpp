#include "libclient/registry.hpp"

#include <new>

#include "libclient/fork_guard.hpp"

namespace apportion {

Registry& Registry::instance() {
  alignas(Registry) static std::byte room[sizeof(Registry)];
  static auto* registry = new (room) Registry;
  return *registry;
}

Result<Registry::Handle> Registry::add(std::unique_ptr<Client> client) {
  if (in_forked_child()) return not_attached();
  const std::lock_guard lock(mutex_);
  for (std::uintptr_t index = 0; index < kSlots; ++index) {
    Slot& slot = slots_[index];
    if (slot.handle.load(std::memory_order_relaxed) != 0) continue;
    slot.client = client.release();
    const Handle handle = ++slot.generation * kSlots + index;
    slot.handle.store(handle, std::memory_order_release);
    return handle;
  }
  return Error{Errc::busy, "this process has 64 sessions attached already; detach one"};
}

std::unique_ptr<Client> Registry::remove(Handle handle) {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Client> client(find(handle));
  if (client != nullptr) slots_[handle % kSlots].handle.store(0, std::memory_order_release);
  return client;
}

Error Registry::not_attached() const {
  if (in_forked_child()) {
    return {Errc::not_attached,
            "not attached: this is a forked child, and CUDA does not survive fork; exec, or start workers "
            "with spawn"};
  }
  return {Errc::not_attached, "not attached: this session was detached, or never was one"};
}

// Async-signal-safe: stores and closes. What the parent mapped and allocated is left as it is.
void abandon_sessions_in_child() {
  Registry& registry = Registry::instance();
  for (Registry::Slot& slot : registry.slots_) {
    if (slot.handle.exchange(0) == 0) continue;
    registry.forked_ = true;
    slot.client->abandon_in_child();
  }
}

}  // namespace apportion
