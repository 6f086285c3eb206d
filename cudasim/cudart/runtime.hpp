// What every function of the stand-in opens with: the simulated driver, a current context, the last error.
//
// The driver's functions are found as NVIDIA's runtime finds them: dlopen("libcuda.so.1"), cuGetProcAddress
// by name and version. A driver that is not the simulator is refused: the stand-in never takes the place of
// the runtime of a real one. Thread-safe; device and last error are each thread's own.
#pragma once
#define __CUDA_API_VERSION_INTERNAL
#include <cudaTypedefs.h>

#include "cudasim/cudart/cuda_runtime_api.hpp"

namespace cudasim::cudart {

struct Driver {
#define CUDART_ENTRY(name, version) PFN_##name##_v##version name = nullptr;
#include "cudasim/cudart/entry_points.def"
#undef CUDART_ENTRY
};

// The simulated driver, initialised; found and initialised at the first call. Errors: insufficient driver
// (there is none, or a function is missing), system driver mismatch (it is not the simulator), the driver's.
cudaError_t find_driver(const Driver*& driver);

// The same with a context current on this thread: the program's own where it has one, else the primary
// context of the thread's device.
cudaError_t enter(const Driver*& driver);

// The device of this thread's next context. `device` exists.
int thread_device();
void set_thread_device(int device);

// Keeps an error as the thread's last, and returns it.
cudaError_t noted(cudaError_t error);
// The last error; cudaSuccess afterwards where `clear`.
cudaError_t last_error(bool clear);

// Both runtimes' codes agree in value for everything that the simulator answers.
inline cudaError_t as_runtime(CUresult result) {
  return static_cast<cudaError_t>(result);
}

// Runs call(driver) with a context current; its code becomes the thread's last error.
template <typename Call>
cudaError_t with_context(Call&& call) {
  const Driver* driver = nullptr;
  if (const cudaError_t error = enter(driver); error != cudaSuccess) return noted(error);
  return noted(as_runtime(call(*driver)));
}
// The same without a context.
template <typename Call>
cudaError_t with_driver(Call&& call) {
  const Driver* driver = nullptr;
  if (const cudaError_t error = find_driver(driver); error != cudaSuccess) return noted(error);
  return noted(as_runtime(call(*driver)));
}

inline CUdeviceptr address_of(const void* pointer) {
  return reinterpret_cast<CUdeviceptr>(pointer);
}

}  // namespace cudasim::cudart
