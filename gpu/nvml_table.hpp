// NVML as a table of function pointers, loaded at run time, with the few structs we need declared here:
// nvml.h is not in the toolkit. The layouts are those of NVML 12 and 13 (public in the nvidia-ml-py
// bindings).
//
// Promises: NEED functions are set; MAY functions can be null. NVML has been initialised. Never: shuts NVML
// down (it is reference-counted, and ends with the process). Thread-safety: NVML is thread-safe; the table is
// const after load.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "shm/result.hpp"

namespace apportion {

using NvmlReturn = int;
using NvmlDevice = struct NvmlDeviceOpaque*;

constexpr NvmlReturn kNvmlSuccess = 0;
constexpr NvmlReturn kNvmlNotSupported = 3;
constexpr NvmlReturn kNvmlInsufficientSize = 7;
// Stands in a process's used bytes where the driver does not know them.
constexpr std::uint64_t kNvmlValueNotAvailable = ~std::uint64_t{0};

struct NvmlMemory {
  std::uint64_t total_bytes;
  std::uint64_t free_bytes;
  std::uint64_t used_bytes;  // here the driver's own reserve counts as used
};
static_assert(sizeof(NvmlMemory) == 24);

struct NvmlMemoryV2 {
  std::uint32_t version;  // kNvmlMemoryV2Version, set by the caller
  std::uint64_t total_bytes;
  std::uint64_t reserved_bytes;  // the driver's own; not in used_bytes
  std::uint64_t free_bytes;
  std::uint64_t used_bytes;
};
static_assert(sizeof(NvmlMemoryV2) == 40 && offsetof(NvmlMemoryV2, total_bytes) == 8);
constexpr std::uint32_t kNvmlMemoryV2Version = sizeof(NvmlMemoryV2) | (2u << 24);

struct NvmlProcessInfo {  // of the _v2 and _v3 functions
  std::uint32_t pid;
  std::uint64_t used_bytes;
  std::uint32_t gpu_instance_id;
  std::uint32_t compute_instance_id;
};
static_assert(sizeof(NvmlProcessInfo) == 24 && offsetof(NvmlProcessInfo, used_bytes) == 8);

class NvmlTable {
 public:
  // Loads and initialises NVML from `path`. Errors: not_found, driver; each one line that names the path.
  static Result<NvmlTable> load(std::string_view path);

  // Where NVML is for the driver file `driver_file`: a simulated driver has its own beside it, else
  // "libnvidia-ml.so.1" wherever the loader finds it.
  [[nodiscard]] static std::string path_for(std::string_view driver_file, bool simulated);

  [[nodiscard]] const std::string& path() const { return path_; }

#define NEED(member, symbol, ...) std::type_identity_t<__VA_ARGS__> member = nullptr;
#define MAY(member, symbol, ...) std::type_identity_t<__VA_ARGS__> member = nullptr;
#include "gpu/nvml_functions.def"  // NOLINT(bugprone-suspicious-include): the list of members
#undef NEED
#undef MAY

 private:
  std::string path_;
};

// "nvmlDeviceGetMemoryInfo: Not Supported (3)", code driver.
[[nodiscard]] Error nvml_error(const NvmlTable& nvml, NvmlReturn result, std::string_view call);

}  // namespace apportion
