// Two simulated devices of 1 GiB in a fresh folder, for the whole test program; the first one opened, and the
// means to fail its calls and to count what is left.
#pragma once

#include <memory>
#include <string>

#include "cudasim/control.hpp"
#include "gpu/device.hpp"

namespace apportion::testing {

class Simulated {
 public:
  static Simulated& instance();

  const Device& device() const { return device_; }
  const std::string& folder_path() const { return path_; }

  cudasim::Control& control() const { return *control_; }

  // Everything this process could leave behind, by an exact census.
  struct Left {
    Bytes used;                // of the device
    cudasim::u32 allocations;  // physical allocations that somebody refers to
    cudasim::u64 addresses;    // reservations made and not freed
    friend bool operator==(const Left&, const Left&) = default;
  };
  Left left() const;

  // Successful calls of a function so far, by all processes.
  cudasim::u64 did(const char* function) const;

 private:
  Simulated();
  ~Simulated();

  std::string path_;
  std::unique_ptr<cudasim::Control> control_;  // makes the folder, before the driver sees it
  Device device_;
};

// While it lives, `function` (no version suffix) answers `code` from its nth call on (from 1), `count` times,
// before any effect.
class FailingCall {
 public:
  static constexpr cudasim::u64 kForEver = cudasim::Fault::kForEver;
  FailingCall(const char* function, CUresult code, cudasim::u64 nth = 1, cudasim::u64 count = 1);
  ~FailingCall();
  FailingCall(const FailingCall&) = delete;
  FailingCall& operator=(const FailingCall&) = delete;

  // Whether the failing call was made.
  [[nodiscard]] bool met() const;

 private:
  const char* function_;
  cudasim::u64 made_by_then_;
};

}  // namespace apportion::testing
