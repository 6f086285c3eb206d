// Who still holds memory: liveness of processes, life-time of allocations, used bytes of a device.
//
// An allocation is free when a fresh open of its file gets LOCK_EX|LOCK_NB: no handle, mapping or fd is
// left in any process, fds in flight included (rule 9). A process is dead when its own file gets it.
#pragma once
#include "cudasim/store/folder.hpp"

namespace cudasim {

// Registers the calling process; its index. kMaxProcesses and one line in `error` when the table is full or
// the folder cannot be written.
u32 register_process(const Folder& folder, bool temporary, std::string& error);

enum class Census { kQuick, kExact };

// Finds dead processes and gives their memory back when its delay has passed; then, when an allocation
// may live by fds alone or `how` is kExact, tests allocations one by one (about 3 us each).
void settle(const Folder& folder, Census how);

// The same for a caller that holds the folder's lock.
void settle_locked(const Folder& folder, Census how);

// Bytes in use on `device`, strangers included, after settle(how).
u64 used_bytes(const Folder& folder, u32 device, Census how);

// Bytes on `device` charged to `process`, as NVML tells it: what it created, and its contexts (rule 41).
u64 process_bytes(const Folder& folder, u32 device, u32 process);

// Caller holds the folder's lock. Reaps `slot` when nothing refers to it any more; true then.
bool reap_if_free(const Folder& folder, u32 slot);

// Recomputes used bytes and counters from the tables; caller holds the folder's lock.
void recompute(const Folder& folder);

}  // namespace cudasim
