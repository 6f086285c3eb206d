// One broker per device, whoever starts it: an abstract socket named by the device's UUID, bound before any
// memory is taken. The kernel drops it with its last descriptor (the keeper keeps one), so that no stale lock
// is possible.
//
// Promises: F20, the second broker learns who is first. Limit: abstract sockets belong to a network
// namespace; brokers in two of them do not see each other, and the device's fullness is all that the second
// will notice.
#pragma once

#include <string>

#include "shm/fd.hpp"
#include "shm/result.hpp"

namespace apportion {

// Errc::busy names the pid and user of the broker that has the device; Errc::system otherwise.
[[nodiscard]] Result<Fd> lock_device(const std::string& uuid);

// Takes over a predecessor's lock: from here on a refused broker is told this process. Errc::system.
[[nodiscard]] Status own_lock(const Fd& lock);

}  // namespace apportion
