// Whose a process is, and what it calls itself: for people who ask who holds the device.
//
// Never: used to decide anything; a name is whatever the process chose.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace apportion {

inline constexpr std::uint32_t kUnknownUid = 0xffffffff;  // no process ever has it

struct ProcessLabel {
  std::uint32_t uid = kUnknownUid;
  std::string name;  // empty: unknown
};

// From /proc; unknown where the process is gone or hidden. Blocks for two small reads.
[[nodiscard]] ProcessLabel label_of(pid_t pid);

}  // namespace apportion
