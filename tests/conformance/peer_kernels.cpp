// What only the device itself can do to memory: tests/conformance/peer_probes.hpp.
#include "driver.hpp"
#include "peer_probes.hpp"
#include "ptx.hpp"

namespace apportion::conformance {
namespace {

// A kernel of ptx.hpp, loaded into the current context at its first use.
CUresult kernel(const char* name, CUfunction* function) {
  if (extra().module_load_data == nullptr || extra().launch_kernel == nullptr)
    return CUDA_ERROR_NOT_SUPPORTED;
  static CUmodule module = nullptr;
  if (module == nullptr)
    if (const CUresult code = extra().module_load_data(&module, kPtx); code != CUDA_SUCCESS) return code;
  return extra().module_get_function(function, module, name);
}

}  // namespace

// On a device only a kernel is sure to reach the memory itself: copies and memsets check the address on the
// host first. The simulator runs no kernels; there its memset is what touches.
CUresult touch(std::uint64_t address) {
  if (on_simulator()) {
    const CUresult code = driver().memset_d8(address, 0x5a, 1);
    return code == CUDA_SUCCESS ? driver().ctx_synchronize() : code;
  }
  CUfunction function = nullptr;
  if (const CUresult code = kernel("touch", &function); code != CUDA_SUCCESS) return code;
  void* arguments[] = {&address};
  const CUresult code = extra().launch_kernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr);
  return code == CUDA_SUCCESS ? driver().ctx_synchronize() : code;
}

CUresult spin(std::uint64_t address, std::uint64_t rounds) {
  CUfunction function = nullptr;
  if (const CUresult code = kernel("spin", &function); code != CUDA_SUCCESS) return code;
  void* arguments[] = {&address, &rounds};
  return extra().launch_kernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr);
}

}  // namespace apportion::conformance
