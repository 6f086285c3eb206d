// Driver functions that tests call and the product does not: kernels, and attributes of fabric and pools.
#pragma once

#include <cudaTypedefs.h>

namespace apportion::conformance {

struct ExtraTable {
  PFN_cuModuleLoadData_v2000 module_load_data = nullptr;
  PFN_cuModuleGetFunction_v2000 module_get_function = nullptr;
  PFN_cuModuleUnload_v2000 module_unload = nullptr;
  PFN_cuLaunchKernel_v4000 launch_kernel = nullptr;
  PFN_cuMemHostGetDevicePointer_v3020 mem_host_get_device_pointer = nullptr;
};

}  // namespace apportion::conformance
