// Lets this thread make driver calls while another thread captures a stream in GLOBAL mode: without it our
// call fails and spoils the user's capture (rule 36).
//
// Promises: the thread's mode is RELAXED from construction to destruction, then what it was. Never: touches
// other threads. Guards nest. Use only on the thread that made it.
#pragma once

#include "gpu/driver_table.hpp"

namespace apportion {

class CaptureGuard {
 public:
  explicit CaptureGuard(const DriverTable& driver);
  ~CaptureGuard();
  CaptureGuard(const CaptureGuard&) = delete;
  CaptureGuard& operator=(const CaptureGuard&) = delete;

 private:
  const DriverTable& driver_;
  CUstreamCaptureMode mode_ =
      CU_STREAM_CAPTURE_MODE_RELAXED;  // what to exchange next: relaxed, then the old one
  bool exchanged_;
};

}  // namespace apportion
