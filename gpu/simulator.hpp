// Finding the simulated driver and preparing this process to use it, for a device named "sim:SIZE".
//
// Promises: changes the environment only when all checks passed. Never: creates the device folder (the
// simulated driver does), loads the driver. Thread-safety: prepare_simulator calls setenv; call it before
// other threads start.
#pragma once

#include <string>

#include "shm/bytes.hpp"
#include "shm/result.hpp"

namespace apportion {

// The path of the simulated libcuda.so.1: APPORTION_DRIVER where it is set, else `cudasim/libcuda.so.1` in
// the build folder this program was built in, else `../lib/apportion/cudasim/libcuda.so.1` from the folder it
// is installed in. Error not_found lists every path tried.
[[nodiscard]] Result<std::string> find_simulator();

// The folder of the simulated device: CUDASIM_DIR, which prepare_simulator sets; else the simulator's own
// default.
[[nodiscard]] std::string simulator_folder();

// What a file system must have free to serve a simulated device of this total. The files are sparse; what
// counts is what programs touch: four pages of every 32 MiB, and the control pages.
[[nodiscard]] Bytes simulator_room(Bytes total);

// For a program that only looks at a device: a simulated one that only such programs have used goes with the
// last of them. Before prepare_simulator.
void leave_no_simulator();

// Sets CUDASIM_DIR, CUDASIM_DEVICES (where unset) and CUDASIM_FORCE for this process and its children, and
// answers the driver's path. Errors: not_found (no simulated driver), out_of_memory (the folder's file
// system, usually /dev/shm, is too small), invalid (a folder that does not exist, elsewhere than directly in
// a folder of a tmpfs), system.
[[nodiscard]] Result<std::string> prepare_simulator(Bytes total);

}  // namespace apportion
