// A device's primary context, retained and made current on this thread: what the CUDA runtime and the
// frameworks use.
//
// Owns: one reference to it. Promises: what was current before is current again afterwards. A context costs
// 100 to 600 MiB of the device, so the broker makes none. Use and destroy on the thread that retained it.
#pragma once

#include "gpu/device.hpp"

namespace apportion {

class PrimaryContext {
 public:
  PrimaryContext() = default;  // empty
  PrimaryContext(PrimaryContext&& other) noexcept;
  PrimaryContext& operator=(PrimaryContext&& other) noexcept;
  PrimaryContext(const PrimaryContext&) = delete;
  PrimaryContext& operator=(const PrimaryContext&) = delete;
  ~PrimaryContext();

  // Errors: out_of_memory (no room for a context), driver.
  static Result<PrimaryContext> retain(const Device& device);
  static Result<PrimaryContext> retain(const DriverTable& driver, CUdevice device);

  [[nodiscard]] CUcontext get() const { return context_; }

 private:
  const DriverTable* driver_ = nullptr;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
};

}  // namespace apportion
