// Forbids this thread system calls, and says which one it made all the same.
#pragma once

#include <atomic>

namespace apportion::bench {

// From here on, any system call of this thread but exit_group stores its number in `made` and ends the
// process with status 0. waits: nor those with which a thread waits for a lock whose holder has lost its
// processor (sched_yield, clock_nanosleep). `made` outlives the process: shared memory. False where the
// kernel has no seccomp filters.
[[nodiscard]] bool forbid_system_calls(std::atomic<int>& made, bool waits);

}  // namespace apportion::bench
