// The helper: the one process of the broker that has a CUDA context, for what needs one. It overwrites
// chunks.
//
// Promises: answers each SCRUB once, and holds nothing of its chunks by then; makes its context for the first
// one, so that "no room for a context" is an answer; ends when its socket ends, or with the broker. A broken
// context is answered and ends it: the next helper has a new one. Never: takes memory of the device but its
// context's, decides what is overwritten, or hears from a client.
#pragma once

#include <sys/types.h>

#include <string>

#include "shm/fd.hpp"

namespace apportion {

inline constexpr const char* kHelperFlag = "--helper-channel";
inline constexpr const char* kHelperDeviceFlag = "--helper-device";
inline constexpr const char* kHelperBrokerFlag = "--helper-broker";

// What the exit code says; helper_ending() makes words of it.
inline constexpr int kHelperNoDevice = 3;
inline constexpr int kHelperBrokenContext = 4;
inline constexpr int kHelperOrphan = 5;  // nobody is left to read it

// `device`: a name that Device::open takes. `broker`: the pid of who started us. The exit code.
[[nodiscard]] int run_helper(Fd channel, const std::string& device, pid_t broker);

}  // namespace apportion
