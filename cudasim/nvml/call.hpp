// What every NVML function that tests may watch or break opens with: counted under its exported name without
// version suffix, delayed and made to fail as the control page says. A fault's code is an NVML code here.
#pragma once

#include "cudasim/nvml/types.hpp"

namespace cudasim::nvml {

// kSuccess, or the fault's code: then the caller returns it without an effect. Nothing where no folder is
// open.
[[nodiscard]] Return enter(const char* function);

}  // namespace cudasim::nvml
