// gpu/context.hpp.
#include "gpu/context.hpp"

#include <utility>

namespace apportion {

PrimaryContext::PrimaryContext(PrimaryContext&& other) noexcept
    : driver_(std::exchange(other.driver_, nullptr)),
      device_(other.device_),
      context_(std::exchange(other.context_, nullptr)) {}

PrimaryContext& PrimaryContext::operator=(PrimaryContext&& other) noexcept {
  std::swap(driver_, other.driver_);
  std::swap(device_, other.device_);
  std::swap(context_, other.context_);
  return *this;
}

PrimaryContext::~PrimaryContext() {
  if (driver_ == nullptr) return;
  CUcontext popped = nullptr;
  static_cast<void>(driver_->ctx_pop_current(&popped));
  static_cast<void>(driver_->device_primary_ctx_release(device_));
}

Result<PrimaryContext> PrimaryContext::retain(const Device& device) {
  return retain(device.driver(), device.ordinal());
}

Result<PrimaryContext> PrimaryContext::retain(const DriverTable& driver, CUdevice device) {
  PrimaryContext context;
  CUresult r = driver.device_primary_ctx_retain(&context.context_, device);
  if (r != CUDA_SUCCESS) return driver_error(driver, r, "cuDevicePrimaryCtxRetain");
  r = driver.ctx_push_current(context.context_);
  if (r != CUDA_SUCCESS) {
    static_cast<void>(driver.device_primary_ctx_release(device));
    return driver_error(driver, r, "cuCtxPushCurrent");
  }
  context.driver_ = &driver;
  context.device_ = device;
  return context;
}

}  // namespace apportion
