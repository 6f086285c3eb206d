// cuGetProcAddress in both forms, and cuGetExportTable. They need no cuInit.
#include "cudasim/driver/call.hpp"
#include "cudasim/driver/names.hpp"

namespace {

using cudasim::DefaultStream;
using cudasim::Lookup;
using cudasim::Needs;

CUresult resolve(const char* symbol, void** pfn, int version, cuuint64_t flags,
                 CUdriverProcAddressQueryResult* status) {
  if (symbol == nullptr || pfn == nullptr || version > CUDA_VERSION) return CUDA_ERROR_INVALID_VALUE;
  constexpr cuuint64_t kBoth =
      CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  if ((flags & ~kBoth) != 0 || flags == kBoth) return CUDA_ERROR_INVALID_VALUE;
  const DefaultStream stream = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0
                                   ? DefaultStream::per_thread
                                   : DefaultStream::legacy;
  const Lookup found = cudasim::look_up(symbol, version, stream);
  *pfn = found.name != nullptr ? found.name->address : nullptr;
  if (status != nullptr) {  // programs pass null, so the field is optional in every form
    switch (found.outcome) {
      case Lookup::Outcome::found:
        *status = CU_GET_PROC_ADDRESS_SUCCESS;
        break;
      case Lookup::Outcome::unknown_name:
        *status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
        break;
      case Lookup::Outcome::version_too_old:
        *status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
        break;
    }
  }
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

// 12.0 form. A name that is not there is no error: the pointer is null and the status says why (cuda.h).
CUresult CUDAAPI cuGetProcAddress_v2(const char* symbol, void** pfn, int version, cuuint64_t flags,
                                     CUdriverProcAddressQueryResult* status) {
  CUDASIM_CALL(cuGetProcAddress_v2, Needs::kNothing, version, flags);
  return call.done(resolve(symbol, pfn, version, flags, status));
}

// 11.3 form: four arguments. A fifth one read here would be whatever the caller left in a register.
CUresult CUDAAPI cuGetProcAddress(const char* symbol, void** pfn, int version, cuuint64_t flags) {
  CUDASIM_CALL(cuGetProcAddress, Needs::kNothing, version, flags);
  const CUresult result = resolve(symbol, pfn, version, flags, nullptr);
  return call.done(result == CUDA_SUCCESS && *pfn == nullptr ? CUDA_ERROR_NOT_FOUND : result);
}

// The vendor's undocumented tables are not here, whichever is asked for: the simulator is no genuine driver,
// and the question whether it is one is not answered, worked around or imitated.
CUresult CUDAAPI cuGetExportTable(const void** table, const CUuuid* id) {
  CUDASIM_CALL(cuGetExportTable, Needs::kNothing);
  if (table == nullptr || id == nullptr) return call.done(CUDA_ERROR_INVALID_VALUE);
  *table = nullptr;
  return call.done(CUDA_ERROR_NOT_FOUND);
}

}  // extern "C"
