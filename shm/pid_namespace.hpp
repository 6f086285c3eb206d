// Whether another process's PID namespace is ours. A cudaIpc handle opens in no other (contract rule 33).
#pragma once

#include <cstdint>

namespace apportion {

// unknown: this user may not look, or the process is gone.
enum class PidNamespace : std::uint8_t { same, other, unknown };

}  // namespace apportion
