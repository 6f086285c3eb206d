// cuda.h with every version of every name declared as it is exported (cuMemAlloc_v2, not the macro), and
// visible outside the library although the project compiles with hidden visibility.
#pragma once
#define __CUDA_API_VERSION_INTERNAL
#pragma GCC visibility push(default)
#include <cuda.h>
#include <cudaProfiler.h>
#pragma GCC visibility pop
// The one name the header leaves a macro although its first version is exported too.
#undef cuDeviceGetUuid
#pragma GCC visibility push(default)
extern "C" CUresult CUDAAPI cuDeviceGetUuid(CUuuid* uuid, CUdevice device);
#pragma GCC visibility pop
