#include "libclient/fork_guard.hpp"

#include <pthread.h>

namespace apportion {

Status install_fork_guard() {
  static const int installed = ::pthread_atfork(nullptr, nullptr, abandon_sessions_in_child);
  if (installed != 0) return system_error("cannot watch for fork", installed);
  return Done{};
}

}  // namespace apportion
