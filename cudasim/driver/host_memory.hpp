// Host memory that the driver knows: pinned by it, or registered with it. Never charged to a device.
#pragma once
#include <optional>

#include "cudasim/driver/cuda_api.hpp"
#include "cudasim/store/layout.hpp"

namespace cudasim {

struct HostMemory {
  u64 base = 0, bytes = 0;
  unsigned flags = 0;
  bool registered = false;  // by cuMemHostRegister: the pages are the program's
  CUcontext context = nullptr;
  u64 id = 0;
};

// What contains `address`; nullopt: ordinary memory. Thread-safe.
std::optional<HostMemory> find_host_memory(u64 address);

}  // namespace cudasim
