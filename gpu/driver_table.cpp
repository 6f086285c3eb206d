// Loading and error texts of the driver table: gpu/driver_table.hpp.
#include "gpu/driver_table.hpp"

#include <dlfcn.h>
#include <link.h>

#include <cstdlib>

namespace apportion {
namespace {

constexpr const char* kDefaultDriver = "libcuda.so.1";

std::string chosen_path(std::string_view path) {
  if (!path.empty()) return std::string(path);
  const char* variable = std::getenv("APPORTION_DRIVER");
  return variable != nullptr && *variable != '\0' ? variable : kDefaultDriver;
}

std::string file_of(void* library, const std::string& fallback) {
  struct link_map* map = nullptr;
  if (::dlinfo(library, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr || map->l_name == nullptr)
    return fallback;
  return *map->l_name == '\0' ? fallback : map->l_name;
}

}  // namespace

Result<DriverTable> DriverTable::load(std::string_view path) {
  DriverTable table;
  table.path_ = chosen_path(path);
  // RTLD_NODELETE: the driver keeps threads and exit handlers of its own.
  table.library_ = ::dlopen(table.path_.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (table.library_ == nullptr) {
    const char* reason = ::dlerror();
    return Error{Errc::not_found,
                 "cannot load the CUDA driver '" + table.path_ +
                     "': " + (reason != nullptr ? reason : "unknown reason") +
                     "; install the NVIDIA driver, set APPORTION_DRIVER to its libcuda.so.1, or use "
                     "device = \"sim:8GiB\""};
  }
  table.file_ = file_of(table.library_, table.path_);
  const char* missing = nullptr;
#define MAY(member, symbol, type) table.member = reinterpret_cast<type>(::dlsym(table.library_, symbol));
#define NEED(member, symbol, type) \
  MAY(member, symbol, type)        \
  if (table.member == nullptr) missing = symbol;
#include "gpu/driver_functions.def"
#undef NEED
#undef MAY
  if (missing != nullptr)
    return Error{Errc::driver, "the CUDA driver '" + table.file_ + "' has no " + missing +
                                   ": it is too old (CUDA 11.4 or newer is needed), or not a CUDA driver"};
  return table;
}

void* DriverTable::find(const char* symbol) const {
  return ::dlsym(library_, symbol);
}

Error driver_error(const DriverTable& driver, CUresult result, std::string_view call) {
  const char* name = nullptr;
  const char* text = nullptr;
  if (driver.get_error_name(result, &name) != CUDA_SUCCESS || name == nullptr) name = "unknown CUDA error";
  if (driver.get_error_string(result, &text) != CUDA_SUCCESS) text = nullptr;
  std::string message;
  try {
    message = std::string(call) + ": " + name + " (" + std::to_string(static_cast<int>(result)) + ")";
    if (text != nullptr) message += std::string(": ") + text;
  } catch (const std::bad_alloc&) {
    message = "driver error";  // F31: so short that it is no allocation
  }
  switch (result) {
    case CUDA_ERROR_OUT_OF_MEMORY:
      return {Errc::out_of_memory, std::move(message)};
    case CUDA_ERROR_NOT_PERMITTED:
      return {Errc::denied, std::move(message)};
    default:
      return {Errc::driver, std::move(message)};
  }
}

Status driver_status(const DriverTable& driver, CUresult result, std::string_view call) {
  if (result == CUDA_SUCCESS) return Done{};
  return driver_error(driver, result, call);
}

}  // namespace apportion
