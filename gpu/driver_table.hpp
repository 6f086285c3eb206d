// The CUDA driver as a table of typed function pointers, loaded at run time.
//
// Owns: the loaded library (for the life of the process: a driver is never unloaded). Promises: every
// function marked NEED in driver_functions.def is set; those marked MAY can be null. Members are named like
// the driver's functions, without "cu", in snake case: cuMemAddressReserve is `mem_address_reserve`. Never:
// calls the driver (not even cuInit) while loading; links libcuda. Thread-safety: const after load; share it
// freely.
#pragma once

#include <cudaTypedefs.h>

#include <string>
#include <string_view>

#include "shm/result.hpp"

namespace apportion {

class DriverTable {
 public:
  // Loads the library at `path`; an empty path means APPORTION_DRIVER, and without that "libcuda.so.1".
  // Errors: not_found where it cannot be loaded, driver where it is too old; both say which path and symbol.
  static Result<DriverTable> load(std::string_view path = {});

  // The path the library was loaded by, as it was given.
  [[nodiscard]] const std::string& path() const { return path_; }
  // The absolute path of the file that was loaded; path() where the loader does not say.
  [[nodiscard]] const std::string& file() const { return file_; }
  // Any other symbol of the library, or null.
  [[nodiscard]] void* find(const char* symbol) const;

#define NEED(member, symbol, type) type member = nullptr;
#define MAY(member, symbol, type) type member = nullptr;
#include "gpu/driver_functions.def"  // NOLINT(bugprone-suspicious-include): the list of members
#undef NEED
#undef MAY

 private:
  void* library_ = nullptr;
  std::string path_;
  std::string file_;
};

// "cuMemCreate: CUDA_ERROR_OUT_OF_MEMORY (2): out of memory". Code: out_of_memory for
// CUDA_ERROR_OUT_OF_MEMORY, denied for CUDA_ERROR_NOT_PERMITTED, driver for all else. `call` is the driver's
// name of the function.
[[nodiscard]] Error driver_error(const DriverTable& driver, CUresult result, std::string_view call);

// Done on CUDA_SUCCESS, else driver_error.
[[nodiscard]] Status driver_status(const DriverTable& driver, CUresult result, std::string_view call);

}  // namespace apportion
