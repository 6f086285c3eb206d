// The file behind a new allocation, and in dirty mode the bytes its last owner left there.
#pragma once
#include "cudasim/store/folder.hpp"

namespace cudasim {

// An open, locked (LOCK_SH) file of `bytes` bytes for `slot`; -1 when the kernel refuses. In dirty mode with
// the bytes of memory that was given back, else with a canary (rule 7). Caller holds the folder's lock.
int make_backing_file(const Folder& folder, u32 slot, u64 bytes);

// Ends the file of a reaped allocation; in dirty mode keeps it for the next one. Caller holds the lock.
void end_backing_file(const Folder& folder, u32 slot);

}  // namespace cudasim
