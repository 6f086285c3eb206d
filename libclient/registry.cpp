#include "libclient/registry.hpp"

#include <type_traits>

#include "libclient/fork_guard.hpp"

namespace apportion {

static_assert(std::is_trivially_destructible_v<Registry>);
constinit Registry Registry::instance_;

Result<Registry::Handle> Registry::add(std::unique_ptr<Client> client) {
  if (in_forked_child()) return Error{Errc::not_attached, not_attached()};
  const ShortGuard lock(lock_);
  for (std::uintptr_t index = 0; index < kSlots; ++index) {
    Slot& slot = slots_[index];
    if (slot.client.load(std::memory_order_relaxed) != nullptr) continue;
    slot.client.store(client.release(), std::memory_order_relaxed);
    const Handle handle = ++slot.generation * kSlots + index;
    attached_ever_.store(true, std::memory_order_relaxed);
    slot.handle.store(handle, std::memory_order_release);
    return handle;
  }
  return Error{Errc::busy, "this process has 64 sessions attached already; detach one"};
}

Client* Registry::hide(Handle handle) {
  if (find(handle) == nullptr) return nullptr;
  const ShortGuard lock(lock_);
  Client* const client = find(handle);
  if (client != nullptr) slots_[handle % kSlots].handle.store(0, std::memory_order_release);
  return client;
}

void Registry::show(Handle handle) {
  slots_[handle % kSlots].handle.store(handle, std::memory_order_release);
}

std::unique_ptr<Client> Registry::remove(Handle handle) {
  const ShortGuard lock(lock_);
  return std::unique_ptr<Client>(slots_[handle % kSlots].client.exchange(nullptr));
}

const char* Registry::not_attached() const noexcept {
  if (in_forked_child()) {
    return "not attached: this is a forked child, and CUDA does not survive fork; exec, or start workers "
           "with spawn";
  }
  return "not attached: this session was detached, or never was one";
}

// Async-signal-safe: stores and closes. What the parent mapped and allocated is left as it is.
void abandon_sessions_in_child() {
  Registry& registry = Registry::instance();
  if (registry.attached_ever_) registry.forked_ = true;
  for (Registry::Slot& slot : registry.slots_) {
    slot.handle = 0;
    if (Client* const client = slot.client) client->abandon_in_child();
  }
}

}  // namespace apportion
