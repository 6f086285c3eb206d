// gpu/stream.hpp.
#include "gpu/stream.hpp"

#include <utility>

namespace apportion {

Event::Event(Event&& other) noexcept
    : driver_(std::exchange(other.driver_, nullptr)), event_(std::exchange(other.event_, nullptr)) {}

Event& Event::operator=(Event&& other) noexcept {
  std::swap(driver_, other.driver_);
  std::swap(event_, other.event_);
  return *this;
}

Event::~Event() {
  if (driver_ != nullptr) static_cast<void>(driver_->event_destroy(event_));
}

Result<Event> Event::create(const DriverTable& driver) {
  Event event;
  const CUresult r = driver.event_create(&event.event_, CU_EVENT_DISABLE_TIMING);
  if (r != CUDA_SUCCESS) return driver_error(driver, r, "cuEventCreate");
  event.driver_ = &driver;
  return event;
}

Status Event::record(CUstream stream) {
  return driver_status(*driver_, driver_->event_record(event_, stream), "cuEventRecord");
}

Result<bool> Event::passed() const {
  const CUresult r = driver_->event_query(event_);
  if (r == CUDA_SUCCESS) return true;
  if (r == CUDA_ERROR_NOT_READY) return false;
  return driver_error(*driver_, r, "cuEventQuery");
}

Status Event::wait() const {
  return driver_status(*driver_, driver_->event_synchronize(event_), "cuEventSynchronize");
}

Result<bool> is_capturing(const DriverTable& driver, CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult r = driver.stream_is_capturing(stream, &status);
  if (r == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) return true;
  if (r != CUDA_SUCCESS) return driver_error(driver, r, "cuStreamIsCapturing");
  return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

Status synchronize_context(const DriverTable& driver) {
  const CUresult r = driver.ctx_synchronize();
  if (r >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED && r <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD) {
    return Error{Errc::busy, driver_error(driver, r, "cuCtxSynchronize").message};
  }
  return driver_status(driver, r, "cuCtxSynchronize");
}

}  // namespace apportion
