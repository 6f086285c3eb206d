#include "cudasim/cudart/runtime.hpp"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>

namespace cudasim::cudart {
namespace {

// cuda.h 12.0's cuGetProcAddress_v2.
using GetProcAddress = CUresult (*)(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);

cudaError_t missing(const char* what) {
  std::fprintf(stderr, "cudasim: the stand-in libcudart.so.13 found no %s\n", what);
  return cudaErrorInsufficientDriver;
}

cudaError_t load(Driver& driver) {
  void* library = ::dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) return missing(::dlerror());
  if (::dlsym(library, "cudasim_launch_uses") == nullptr) {
    std::fprintf(
        stderr,
        "cudasim: the stand-in libcudart.so.13 runs on the simulated driver only; for this driver use "
        "NVIDIA's own: leave the simulator's folder out of LD_LIBRARY_PATH\n");
    return cudaErrorSystemDriverMismatch;
  }
  const auto find = reinterpret_cast<GetProcAddress>(::dlsym(library, "cuGetProcAddress_v2"));
  if (find == nullptr) return missing("cuGetProcAddress_v2");
  const struct {
    const char* name;
    int version;
    void** place;
  } entries[] = {
#define CUDART_ENTRY(name, version) {#name, version, reinterpret_cast<void**>(&driver.name)},
#include "cudasim/cudart/entry_points.def"
#undef CUDART_ENTRY
  };
  for (const auto& entry : entries) {
    const CUresult found =
        find(entry.name, entry.place, entry.version, CU_GET_PROC_ADDRESS_LEGACY_STREAM, nullptr);
    if (found != CUDA_SUCCESS || *entry.place == nullptr) return missing(entry.name);
  }
  return as_runtime(driver.cuInit(0));
}

thread_local int device_of_thread = 0;
thread_local cudaError_t last = cudaSuccess;

// The primary contexts that this process holds a reference to, by device. Never destroyed: atexit handlers of
// programs still make calls.
struct Primaries {
  std::mutex mutex;
  std::map<int, CUcontext> contexts;
};
Primaries& primaries() {
  static auto* all = new Primaries;
  return *all;
}

CUresult primary(const Driver& driver, int device, CUcontext& context) {
  Primaries& all = primaries();
  const std::lock_guard lock(all.mutex);
  const auto found = all.contexts.find(device);
  if (found != all.contexts.end()) {
    context = found->second;
    return CUDA_SUCCESS;
  }
  const CUresult retained = driver.cuDevicePrimaryCtxRetain(&context, device);
  if (retained == CUDA_SUCCESS) all.contexts.emplace(device, context);
  return retained;
}

}  // namespace

cudaError_t find_driver(const Driver*& driver) {
  static Driver found;
  static const cudaError_t error = load(found);
  driver = &found;
  return error;
}

cudaError_t enter(const Driver*& driver) {
  if (const cudaError_t error = find_driver(driver); error != cudaSuccess) return error;
  CUcontext context = nullptr;
  if (const CUresult r = driver->cuCtxGetCurrent(&context); r != CUDA_SUCCESS) return as_runtime(r);
  if (context != nullptr) return cudaSuccess;
  if (const CUresult r = primary(*driver, device_of_thread, context); r != CUDA_SUCCESS) return as_runtime(r);
  return as_runtime(driver->cuCtxSetCurrent(context));
}

int thread_device() {
  return device_of_thread;
}
void set_thread_device(int device) {
  device_of_thread = device;
}

cudaError_t noted(cudaError_t error) {
  if (error != cudaSuccess) last = error;
  return error;
}

cudaError_t last_error(bool clear) {
  const cudaError_t error = last;
  if (clear) last = cudaSuccess;
  return error;
}

}  // namespace cudasim::cudart
