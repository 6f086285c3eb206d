// The driver under test: the product's own table (gpu/driver_table.hpp) over the library that
// APPORTION_DRIVER names, or over the built simulator; and the few entries that only tests call.
//
// Promises: loads at the first call, once per process, and never initialises CUDA by itself (rule 1 is tested
// too). Never: changes a setting of the device.
#pragma once

#include <cstdint>
#include <string>

#include "extra_table.hpp"
#include "gpu/driver_table.hpp"

namespace apportion::conformance {

// The table; ends the process with one line where the library cannot be loaded.
const DriverTable& driver();
// What the table leaves out because the product never calls it. A missing entry is null.
const ExtraTable& extra();

// The library's path: APPORTION_DRIVER, else the simulator beside this program's build.
const std::string& driver_path();
// NVML beside it: APPORTION_NVML, else the simulator's, else "libnvidia-ml.so.1".
std::string nvml_path();

// True where the library says that it is the simulator.
bool on_simulator();

// The folder of the running program.
std::string program_folder();

}  // namespace apportion::conformance
