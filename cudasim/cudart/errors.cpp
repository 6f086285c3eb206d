// The last error and the texts of errors. Names that the stand-in cannot answer with are not listed.
#include "cudasim/cudart/runtime.hpp"

using namespace cudasim::cudart;

namespace {

struct Named {
  cudaError_t error;
  const char* name;
};
constexpr Named kNames[] = {
#define NAMED(error) \
  { error, #error }
    NAMED(cudaSuccess),
    NAMED(cudaErrorInvalidValue),
    NAMED(cudaErrorMemoryAllocation),
    NAMED(cudaErrorInitializationError),
    NAMED(cudaErrorInvalidConfiguration),
    NAMED(cudaErrorInvalidMemcpyDirection),
    NAMED(cudaErrorInsufficientDriver),
    NAMED(cudaErrorInvalidDeviceFunction),
    NAMED(cudaErrorNoDevice),
    NAMED(cudaErrorInvalidDevice),
    NAMED(cudaErrorDeviceUninitialized),
    NAMED(cudaErrorInvalidResourceHandle),
    NAMED(cudaErrorNotReady),
    NAMED(cudaErrorIllegalAddress),
    NAMED(cudaErrorContextIsDestroyed),
    NAMED(cudaErrorLaunchFailure),
    NAMED(cudaErrorNotPermitted),
    NAMED(cudaErrorNotSupported),
    NAMED(cudaErrorSystemDriverMismatch),
    NAMED(cudaErrorStreamCaptureUnsupported),
    NAMED(cudaErrorStreamCaptureInvalidated),
    NAMED(cudaErrorStreamCaptureImplicit),
    NAMED(cudaErrorUnknown),
#undef NAMED
};

// Errors that no driver knows.
const char* text_of_runtime(cudaError_t error) {
  switch (error) {
    case cudaErrorInvalidConfiguration:
      return "invalid configuration argument";
    case cudaErrorInvalidMemcpyDirection:
      return "invalid copy direction for memcpy";
    case cudaErrorInsufficientDriver:
      return "there is no driver of this version";
    case cudaErrorInvalidDeviceFunction:
      return "invalid device function";
    default:
      return nullptr;
  }
}

}  // namespace

extern "C" {

cudaError_t cudaGetLastError(void) {
  return last_error(true);
}
cudaError_t cudaPeekAtLastError(void) {
  return last_error(false);
}

const char* cudaGetErrorName(cudaError_t error) {
  for (const Named& named : kNames)
    if (named.error == error) return named.name;
  return "unrecognized error code";
}

const char* cudaGetErrorString(cudaError_t error) {
  if (const char* text = text_of_runtime(error)) return text;
  const Driver* driver = nullptr;
  const char* text = nullptr;
  if (find_driver(driver) == cudaSuccess &&
      driver->cuGetErrorString(static_cast<CUresult>(error), &text) == CUDA_SUCCESS)
    return text;
  return cudaGetErrorName(error);
}

}  // extern "C"
