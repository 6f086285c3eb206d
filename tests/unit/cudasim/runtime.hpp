// The built stand-in runtime over the built driver, as a program that nvcc built finds it.
#pragma once
#include <cuda_runtime_api.h>

#include "tests/unit/cudasim/simulator.hpp"

namespace cudasim::testing {

inline void* runtime_library() {
  static void* library = [] {
    (void)driver_library();  // what dlopen("libcuda.so.1") then returns
    void* loaded = ::dlopen(CUDASIM_LIBCUDART, RTLD_NOW | RTLD_LOCAL);
    if (loaded == nullptr) FAIL(::dlerror());
    return loaded;
  }();
  return library;
}

// A function at the version that nvcc's output asks for.
template <typename Function>
Function runtime_symbol(const char* name) {
  void* address = ::dlvsym(runtime_library(), name, "libcudart.so.13");
  if (address == nullptr) FAIL(name << "@libcudart.so.13 is not exported");
  return reinterpret_cast<Function>(address);
}

// RUNTIME(cudaMalloc)(&p, n)
#define RUNTIME(name) (::cudasim::testing::runtime_symbol<decltype(&name)>(#name))

}  // namespace cudasim::testing
