// gpu/capture_guard.hpp.
#include "gpu/capture_guard.hpp"

namespace apportion {

// Before cuInit the exchange fails; then nothing can be capturing, and there is nothing to put back.
CaptureGuard::CaptureGuard(const DriverTable& driver)
    : driver_(driver), exchanged_(driver.thread_exchange_stream_capture_mode(&mode_) == CUDA_SUCCESS) {}

CaptureGuard::~CaptureGuard() {
  if (exchanged_) static_cast<void>(driver_.thread_exchange_stream_capture_mode(&mode_));
}

}  // namespace apportion
