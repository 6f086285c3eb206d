// The helper: the one process of the broker that has a CUDA context, for what needs one. It overwrites
// chunks, and makes the slabs of jobs with transport = "ipc".
//
// Owns: every slab that is out; they live and die with it, for their holders too (F52). Promises: answers
// each request once, and holds nothing of a SCRUB's chunks by then; makes its context for the first one, so
// that "no room for a context" is an answer; ends when its socket ends, or with the broker. A broken context
// is answered and ends it: the next helper has a new one. Never: takes memory of the device but its context's
// and the slabs it is asked for, frees a slab unasked (rule 35), decides what is overwritten, or hears from a
// client.
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
