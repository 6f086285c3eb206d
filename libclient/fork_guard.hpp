// What happens to sessions when the process forks: the child has none (F06), and closes what it inherited of
// them, so that a session ends with the process that attached it (F05). The parent notices nothing.
#pragma once

#include "shm/result.hpp"

namespace apportion {

// Once per process, before the first session. Thread-safe. Error system.
[[nodiscard]] Status install_fork_guard();

// In the child.
void abandon_sessions_in_child();

}  // namespace apportion
