// A simulated device of 1 GiB in a fresh folder, one for the whole test program, and the means to fail its
// calls and to count what is left.
#pragma once

#include <string>

#include "cudasim/store/census.hpp"
#include "gpu/device.hpp"

namespace apportion::testing {

class Simulated {
 public:
  static Simulated& instance();

  const Device& device() const { return device_; }
  const std::string& folder_path() const { return path_; }

  // From its nth call on (from 1), `function` (no version suffix) answers `code`, `count` times, before any
  // effect.
  static constexpr cudasim::u64 kForEver = ~cudasim::u64{0};
  void fail(const char* function, CUresult code, cudasim::u64 nth = 1, cudasim::u64 count = 1);
  void stop_failing();
  // Whether the armed failure was met.
  bool failed() const;

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
  Device device_;
  cudasim::Folder* folder_;
  cudasim::FunctionRecord* armed_ = nullptr;
};

// Stops failing at the end of a test, however it ends.
class FailingCall {
 public:
  FailingCall(const char* function, CUresult code, cudasim::u64 nth = 1, cudasim::u64 count = 1) {
    Simulated::instance().fail(function, code, nth, count);
  }
  ~FailingCall() { Simulated::instance().stop_failing(); }
  FailingCall(const FailingCall&) = delete;
  FailingCall& operator=(const FailingCall&) = delete;
};

}  // namespace apportion::testing
