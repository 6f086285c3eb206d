// Devices: which there are, which one a thread uses, what they are.
#include <cstring>

#include "cudasim/cudart/runtime.hpp"

using namespace cudasim::cudart;

namespace {

CUresult attribute(const Driver& driver, CUdevice_attribute which, CUdevice device, int& out) {
  return driver.cuDeviceGetAttribute(&out, which, device);
}

// Whether the process has such a device; its handle.
CUresult device_of(const Driver& driver, int ordinal, CUdevice& device) {
  return driver.cuDeviceGet(&device, ordinal);
}

// What programs choose kernels and sizes by. The rest stays 0.
CUresult fill(const Driver& driver, cudaDeviceProp& prop, CUdevice device) {
  const struct {
    CUdevice_attribute which;
    int* place;
  } whole[] = {
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &prop.major},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &prop.minor},
      {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &prop.multiProcessorCount},
      {CU_DEVICE_ATTRIBUTE_WARP_SIZE, &prop.warpSize},
      {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &prop.maxThreadsPerBlock},
      {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, &prop.maxThreadsPerMultiProcessor},
      {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, &prop.unifiedAddressing},
      {CU_DEVICE_ATTRIBUTE_INTEGRATED, &prop.integrated},
      {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, &prop.memoryPoolsSupported},
  };
  for (const auto& [which, place] : whole)
    if (const CUresult r = attribute(driver, which, device, *place); r != CUDA_SUCCESS) return r;
  CUuuid uuid{};
  if (const CUresult r = driver.cuDeviceGetUuid(&uuid, device); r != CUDA_SUCCESS) return r;
  std::memcpy(&prop.uuid, &uuid, sizeof uuid);
  if (const CUresult r = driver.cuDeviceTotalMem(&prop.totalGlobalMem, device); r != CUDA_SUCCESS) return r;
  return driver.cuDeviceGetName(prop.name, sizeof prop.name, device);
}

}  // namespace

extern "C" {

cudaError_t cudaRuntimeGetVersion(int* version) {
  if (version == nullptr) return noted(cudaErrorInvalidValue);
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  return with_driver([&](const Driver& driver) { return driver.cuDriverGetVersion(version); });
}

cudaError_t cudaGetDeviceCount(int* count) {
  return with_driver([&](const Driver& driver) { return driver.cuDeviceGetCount(count); });
}

// Of a thread that has a context: that one's.
cudaError_t cudaGetDevice(int* device) {
  return with_driver([&](const Driver& driver) {
    CUcontext context = nullptr;
    if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult r = driver.cuCtxGetCurrent(&context); r != CUDA_SUCCESS) return r;
    *device = thread_device();
    return context == nullptr ? CUDA_SUCCESS : driver.cuCtxGetDevice(device);
  });
}

// Since CUDA 12 it also makes the device's context current.
cudaError_t cudaSetDevice(int device) {
  const Driver* driver = nullptr;
  if (const cudaError_t error = find_driver(driver); error != cudaSuccess) return noted(error);
  CUdevice handle = 0;
  if (const CUresult r = device_of(*driver, device, handle); r != CUDA_SUCCESS) return noted(as_runtime(r));
  set_thread_device(device);
  if (const CUresult r = driver->cuCtxSetCurrent(nullptr); r != CUDA_SUCCESS) return noted(as_runtime(r));
  return noted(enter(driver));
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* prop, int device) {
  return with_driver([&](const Driver& driver) {
    CUdevice handle = 0;
    if (prop == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult r = device_of(driver, device, handle); r != CUDA_SUCCESS) return r;
    *prop = {};
    return fill(driver, *prop, handle);
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int device) {
  return with_driver([&](const Driver& driver) {
    return driver.cuDeviceGetAttribute(value, static_cast<CUdevice_attribute>(which), device);
  });
}

cudaError_t cudaDeviceSynchronize(void) {
  return with_context([](const Driver& driver) { return driver.cuCtxSynchronize(); });
}

cudaError_t cudaDeviceReset(void) {
  return with_context([](const Driver& driver) {
    CUdevice device = 0;
    if (const CUresult r = driver.cuCtxGetDevice(&device); r != CUDA_SUCCESS) return r;
    return driver.cuDevicePrimaryCtxReset(device);
  });
}

}  // extern "C"
