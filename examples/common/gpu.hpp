// The driver with a context on a session's device, for the examples in C++: it gives itself back.
#ifndef APPORTION_EXAMPLES_GPU_HPP
#define APPORTION_EXAMPLES_GPU_HPP

#include <stdexcept>
#include <string>

#include "driver.h"

class Gpu {
 public:
  explicit Gpu(const std::string& device_uuid) {
    if (driver_open(&driver_, device_uuid.c_str()) != 0) throw std::runtime_error("cannot use the device");
  }
  ~Gpu() { driver_close(&driver_); }
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  void require(CUresult result, const char* call) const {
    if (driver_check(&driver_, result, call) != 0) throw std::runtime_error(call);
  }
  const driver* operator->() const { return &driver_; }

 private:
  driver driver_{};
};

#endif
