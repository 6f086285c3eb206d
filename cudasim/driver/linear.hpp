// Linear device memory: what cuMemAlloc, managed memory and memory pools hand out.
//
// Allocations below 1 MiB share 2 MiB blocks, as on a device (rule 32); larger ones are rounded up to 2 MiB.
// Thread-safe. Bytes.
#pragma once
#include "cudasim/driver/address_space.hpp"

namespace cudasim {

inline constexpr u64 kSmallLinear = 1u << 20;  // bytes; below, an allocation comes from a shared block
inline constexpr u64 kLinearAlignment = 512;   // bytes; what cuMemAlloc promises at least

// CUDA_ERROR_OUT_OF_MEMORY when the device is full (rule 6). `kind`: kLinear, kManaged or kAsync.
CUresult linear_allocate(Context& context, u64 bytes, RangeKind kind, CUdeviceptr* out);
// Frees what linear_allocate gave; codes::kFreeUnknown when `address` is not such a base (rule 30).
CUresult linear_free(CUdeviceptr address, RangeKind kind);
// Frees everything that was allocated in `context`, as its destruction does.
void linear_context_gone(Context& context);

}  // namespace cudasim
