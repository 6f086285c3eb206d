// cuda.h with every version of every function declared, and exported from this library when defined.
// A definition that does not match NVIDIA's declaration does not compile.
#pragma once

#ifdef __cuda_cuda_h__
#error "include cudasim/cuda_api.hpp before anything that includes cuda.h"
#endif
#define __CUDA_API_VERSION_INTERNAL
#pragma GCC visibility push(default)
#include <cuda.h>
#include <cudaProfiler.h>
#pragma GCC visibility pop
