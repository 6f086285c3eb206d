// What cuDeviceGetAttribute answers.
#pragma once
#include "cudasim/driver/cuda_api.hpp"

namespace cudasim {

// False when the header knows no such attribute. What the simulator has no opinion about is 0.
bool device_attribute(CUdevice device, CUdevice_attribute attribute, int& out);

}  // namespace cudasim
