/* The few CUDA driver calls that the examples use, loaded at run time as every program of ours does.
 *
 * A program that uses CUDA's runtime needs none of this: cudaMemcpy takes the library's pointers as it takes
 * cudaMalloc's. The driver API is used here because it also runs on a simulated device, where NVIDIA's own
 * runtime does not. Attach first: libapportion has then loaded the broker's driver, real or simulated, and
 * dlopen("libcuda.so.1") finds that very one.
 */
#ifndef APPORTION_EXAMPLES_DRIVER_H
#define APPORTION_EXAMPLES_DRIVER_H

#include <cuda.h>

#ifdef __cplusplus
extern "C" {
#endif

struct driver {
  CUresult (*init)(unsigned flags);
  CUresult (*get_error_name)(CUresult result, const char** name);
  CUresult (*device_count)(int* count);
  CUresult (*device)(CUdevice* device, int ordinal);
  CUresult (*device_uuid)(CUuuid* uuid, CUdevice device);
  CUresult (*context_retain)(CUcontext* context, CUdevice device);
  CUresult (*context_release)(CUdevice device);
  CUresult (*context_set)(CUcontext context);
  CUresult (*memset_d32)(CUdeviceptr to, unsigned value, size_t words);
  CUresult (*copy_to_device)(CUdeviceptr to, const void* from, size_t bytes);
  CUresult (*copy_to_host)(void* to, CUdeviceptr from, size_t bytes);
  CUresult (*copy_to_device_async)(CUdeviceptr to, const void* from, size_t bytes, CUstream stream);
  CUresult (*copy_on_device_async)(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream);
  CUresult (*copy_to_host_async)(void* to, CUdeviceptr from, size_t bytes, CUstream stream);
  CUresult (*stream_create)(CUstream* stream, unsigned flags);
  CUresult (*stream_synchronize)(CUstream stream);
  CUresult (*stream_destroy)(CUstream stream);
  CUdevice chosen;
};

/* Loads the driver and makes the primary context of the device with this UUID ("GPU-..." as
 * apportion_get_info tells it) current on this thread. 0, or -1 after one line on standard error; then
 * nothing needs closing. */
int driver_open(struct driver* driver, const char* device_uuid);
void driver_close(struct driver* driver);

/* 0 where `result` is CUDA_SUCCESS; else -1, after one line on standard error. */
int driver_check(const struct driver* driver, CUresult result, const char* call);

#ifdef __cplusplus
}
#endif

#endif
