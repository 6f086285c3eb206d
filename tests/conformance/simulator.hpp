// What only the simulated driver has: its control page. On a real driver nothing here may be used; tests skip
// first (SIMULATOR_ONLY, with the reason).
#pragma once

#include <string>

#include "cudasim/store/layout.hpp"

// Opens a test that needs to steer or question the simulator.
#define SIMULATOR_ONLY(reason) \
  if (!::apportion::conformance::on_simulator()) APPORTION_SKIP("needs the simulator: " reason)

namespace apportion::conformance {

// The control page of a simulated device's folder, mapped for as long as this lives.
class SimulatorControl {
 public:
  // Fails the test where no process has made the device yet.
  explicit SimulatorControl(const std::string& folder);
  ~SimulatorControl();
  SimulatorControl(const SimulatorControl&) = delete;
  SimulatorControl& operator=(const SimulatorControl&) = delete;

  cudasim::ControlPage* operator->() const { return page_; }

 private:
  cudasim::ControlPage* page_ = nullptr;
};

}  // namespace apportion::conformance
