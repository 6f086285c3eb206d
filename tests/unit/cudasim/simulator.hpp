// The built driver and NVML, loaded as a program loads them, over a device folder of this test program's own.
#pragma once
#include <cuda.h>
#include <dlfcn.h>

#include <string>

#include "tests/support/catch.hpp"

namespace cudasim::testing {

// Made before the first test and removed after the last: /dev/shm/cudasim-scratch-XXXXXX/devices, of one 1
// GiB device whose contexts cost 16 MiB. Variables are set before either library is loaded.
const std::string& device_folder();

// Handles of build/.../cudasim/libcuda.so.1 and libnvidia-ml.so.1.
void* driver_library();
void* nvml_library();

// A function of either library; fails the test where it is not exported.
void* symbol_of(void* library, const char* name);
template <typename Function>
Function driver_symbol(const char* name) {
  return reinterpret_cast<Function>(symbol_of(driver_library(), name));
}
template <typename Function>
Function nvml_symbol(const char* name) {
  return reinterpret_cast<Function>(symbol_of(nvml_library(), name));
}

// DRIVER(cuMemAlloc)(&p, n): the function that cuda.h means by the name, by its exported symbol.
#define CUDASIM_TEXT2(name) #name
#define CUDASIM_TEXT(name) CUDASIM_TEXT2(name)
#define DRIVER(name) (::cudasim::testing::driver_symbol<decltype(&name)>(CUDASIM_TEXT(name)))

// cuInit and a current context, made at first use; every later call makes it current for the calling thread.
CUcontext use_context();

}  // namespace cudasim::testing
