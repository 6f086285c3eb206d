// What the context functions of the API do: make, retain, stack and end contexts of this process.
//
// Thread-safe; the stack is the calling thread's. Codes are those the API call returns.
#pragma once
#include "cudasim/driver/context.hpp"

namespace cudasim {

// Charges the device; CUDA_ERROR_OUT_OF_MEMORY when it is full. The new context becomes current.
CUresult create_context(CUcontext* out, unsigned flags, CUdevice device);
// Frees its linear memory and gives its bytes back. Not for primary contexts.
CUresult destroy_context(CUcontext handle);
CUresult retain_primary(CUcontext* out, CUdevice device);
// With `reset` the context ends whatever retains it, and is made again when something does.
CUresult release_primary(CUdevice device, bool reset);
CUresult set_primary_flags(CUdevice device, unsigned flags);
CUresult primary_state(CUdevice device, unsigned* flags, int* active);
CUresult push_context(CUcontext handle);
CUresult pop_context(CUcontext* out);
CUresult set_current_context(CUcontext handle);
// Runs its pending work; its sticky error, else the first error of that work.
CUresult wait_for_context(Context& context);

}  // namespace cudasim
