// A driver call's result code that prints as its name, so that a failed check reads "INVALID_VALUE == OK".
//
// Promises: comparing and printing never call the driver. Never: decides what a code means; rules do.
#pragma once

#include <cuda.h>

#include <iosfwd>
#include <string>

namespace apportion::conformance {

struct Answer {
  CUresult code = CUDA_SUCCESS;
  bool died = false;  // the process that made the call ended in it (helper processes only)

  [[nodiscard]] bool ok() const { return !died && code == CUDA_SUCCESS; }
  friend bool operator==(Answer, Answer) = default;
};

// "OK", "INVALID_VALUE", "error 1234" or "the process died".
[[nodiscard]] std::string to_text(Answer answer);
std::ostream& operator<<(std::ostream& out, Answer answer);

inline constexpr Answer kOk{CUDA_SUCCESS};
inline constexpr Answer kInvalidValue{CUDA_ERROR_INVALID_VALUE};
inline constexpr Answer kOutOfMemory{CUDA_ERROR_OUT_OF_MEMORY};
inline constexpr Answer kNotInitialized{CUDA_ERROR_NOT_INITIALIZED};
inline constexpr Answer kInvalidContext{CUDA_ERROR_INVALID_CONTEXT};
inline constexpr Answer kNotPermitted{CUDA_ERROR_NOT_PERMITTED};
inline constexpr Answer kNotSupported{CUDA_ERROR_NOT_SUPPORTED};
inline constexpr Answer kNotReady{CUDA_ERROR_NOT_READY};
inline constexpr Answer kIllegalAddress{CUDA_ERROR_ILLEGAL_ADDRESS};
inline constexpr Answer kCaptureUnsupported{CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED};
inline constexpr Answer kCaptureInvalidated{CUDA_ERROR_STREAM_CAPTURE_INVALIDATED};
inline constexpr Answer kDied{CUDA_ERROR_UNKNOWN, true};

}  // namespace apportion::conformance
