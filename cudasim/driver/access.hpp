// Reading and writing device memory: what copies, memsets and "kernels" of the simulator are made of.
//
// Device addresses have no host access in strict mode, so the bytes are reached through a short-lived second
// mapping. Each function checks rule 13, 15 and 19: an address inside a reservation that is not mapped or
// may not be accessed makes `context` sticky with 700; one that nobody knows is codes::kUnknownPointer.
// Thread-safe. Sizes in bytes. They do not wait for streams and do not count as driver calls.
#pragma once
#include "cudasim/driver/context.hpp"

namespace cudasim {

CUresult read_device(Context* context, CUdeviceptr source, void* target, u64 bytes);
CUresult write_device(Context* context, CUdeviceptr target, const void* source, u64 bytes);
CUresult copy_device(Context* context, CUdeviceptr target, CUdeviceptr source, u64 bytes);
// `pattern_bytes` is 1, 2 or 4; `count` elements. A fill with zero punches holes and touches nothing.
CUresult fill_device(Context* context, CUdeviceptr target, u32 pattern, u32 pattern_bytes, u64 count);

// Only the checks of the above, for work that is enqueued now and runs later.
CUresult check_device(Context* context, CUdeviceptr address, u64 bytes, bool write);

// True when `address` is device or managed memory (else the caller treats it as host memory).
bool is_device_address(CUdeviceptr address);

}  // namespace cudasim
