// Modules and libraries of device code. The code is not looked at: any image loads, and any name is a kernel
// in it.
#pragma once
#include "cudasim/driver/cuda_api.hpp"

namespace cudasim {

// True for a handle that cuModuleGetFunction or cuLibraryGetKernel gave out and whose module is still
// loaded.
bool is_function(const void* handle);

}  // namespace cudasim
