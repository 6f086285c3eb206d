// Loading of NVML: gpu/nvml_table.hpp.
#include "gpu/nvml_table.hpp"

#include <dlfcn.h>

namespace apportion {
namespace {

constexpr const char* kNvmlLibrary = "libnvidia-ml.so.1";

}  // namespace

std::string NvmlTable::path_for(std::string_view driver_file, bool simulated) {
  const auto slash = driver_file.rfind('/');
  if (!simulated || slash == std::string_view::npos) return kNvmlLibrary;
  return std::string(driver_file.substr(0, slash + 1)) + kNvmlLibrary;
}

Result<NvmlTable> NvmlTable::load(std::string_view path) {
  NvmlTable table;
  table.path_ = path;
  void* library = ::dlopen(table.path_.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    const char* reason = ::dlerror();
    return Error{Errc::not_found,
                 "cannot load NVML '" + table.path_ +
                     "': " + (reason != nullptr ? reason : "unknown reason") +
                     "; it comes with the NVIDIA driver (in a container: the 'utility' capability)"};
  }
  const char* missing = nullptr;
#define MAY(member, symbol, ...) \
  table.member = reinterpret_cast<decltype(table.member)>(::dlsym(library, symbol));
#define NEED(member, symbol, ...)  \
  MAY(member, symbol, __VA_ARGS__) \
  if (table.member == nullptr) missing = symbol;
#include "gpu/nvml_functions.def"
#undef NEED
#undef MAY
  if (missing != nullptr)
    return Error{Errc::driver,
                 "NVML '" + table.path_ + "' has no " + missing + ": it is too old, or not NVML"};
  if (const NvmlReturn result = table.init(); result != kNvmlSuccess)
    return nvml_error(table, result, "nvmlInit_v2");
  return table;
}

Error nvml_error(const NvmlTable& nvml, NvmlReturn result, std::string_view call) {
  const char* text = nvml.error_string != nullptr ? nvml.error_string(result) : nullptr;
  return {Errc::driver, std::string(call) + ": " + (text != nullptr ? text : "NVML error") + " (" +
                            std::to_string(result) + ")"};
}

}  // namespace apportion
