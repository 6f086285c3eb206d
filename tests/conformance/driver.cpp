// Finding and loading the driver under test: tests/conformance/driver.hpp.
#include "driver.hpp"

#include <unistd.h>

#include <climits>
#include <cstdio>
#include <cstdlib>

namespace apportion::conformance {
namespace {

bool exists(const std::string& path) {
  return ::access(path.c_str(), R_OK) == 0;
}

std::string simulator_folder() {
  if (const char* build = std::getenv("APPORTION_BUILD_DIR")) return std::string(build) + "/cudasim";
  return program_folder() + "/../../cudasim";
}

DriverTable load() {
  auto table = DriverTable::load(driver_path());
  if (table) return std::move(table).value();
  std::fprintf(stderr, "%s\n", table.error().message.c_str());
  std::exit(2);
}

ExtraTable load_extra() {
  ExtraTable table;
  const auto set = [](auto& entry, const char* symbol) {
    entry = reinterpret_cast<std::decay_t<decltype(entry)>>(driver().find(symbol));
  };
  set(table.module_load_data, "cuModuleLoadData");
  set(table.module_get_function, "cuModuleGetFunction");
  set(table.module_unload, "cuModuleUnload");
  set(table.launch_kernel, "cuLaunchKernel");
  set(table.mem_host_get_device_pointer, "cuMemHostGetDevicePointer_v2");
  return table;
}

}  // namespace

std::string program_folder() {
  char path[PATH_MAX];
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof path - 1);
  if (length <= 0) return ".";
  const std::string program(path, static_cast<std::size_t>(length));
  return program.substr(0, program.rfind('/'));
}

const std::string& driver_path() {
  static const std::string path = [] {
    if (const char* named = std::getenv("APPORTION_DRIVER"); named != nullptr && *named != '\0')
      return std::string(named);
    return simulator_folder() + "/libcuda.so.1";
  }();
  return path;
}

std::string nvml_path() {
  if (const char* named = std::getenv("APPORTION_NVML"); named != nullptr && *named != '\0') return named;
  const std::string beside = driver_path().substr(0, driver_path().rfind('/') + 1) + "libnvidia-ml.so.1";
  return driver_path().find('/') != std::string::npos && exists(beside) ? beside : "libnvidia-ml.so.1";
}

const DriverTable& driver() {
  static const DriverTable table = load();
  return table;
}

bool on_simulator() {
  static const bool simulated = driver().find("cudasim_version") != nullptr;
  return simulated;
}

const ExtraTable& extra() {
  static const ExtraTable table = load_extra();
  return table;
}

}  // namespace apportion::conformance
