// cuda_runtime_api.h and the functions that nvcc's own output calls, visible outside the library although the
// project compiles with hidden visibility. The latter are declared here as the toolkit's public
// crt/host_runtime.h and crt/device_functions.h declare them, which only nvcc's output may include.
#pragma once
#pragma GCC visibility push(default)
#include <cuda_runtime_api.h>

extern "C" {
void** __cudaRegisterFatBinary(void* code);
void __cudaRegisterFatBinaryEnd(void** handle);
void __cudaUnregisterFatBinary(void** handle);
void __cudaRegisterFunction(void** handle, const char* host_function, char* device_function, const char* name,
                            int thread_limit, uint3* thread, uint3* block, dim3* block_size, dim3* grid_size,
                            int* warp_size);
void __cudaRegisterVar(void** handle, char* host_variable, char* address, const char* name, int is_extern,
                       size_t bytes, int is_constant, int is_global);
char __cudaInitModule(void** handle);
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host_function);
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, struct CUstream_st* stream);
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared_bytes, void* stream);
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                               size_t shared_bytes, cudaStream_t stream);
}
#pragma GCC visibility pop
