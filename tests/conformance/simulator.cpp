// Mapping the simulator's control page: tests/conformance/simulator.hpp.
#include "simulator.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/support/catch.hpp"

namespace apportion::conformance {

SimulatorControl::SimulatorControl(const std::string& folder) {
  const int fd = ::open((folder + "/control").c_str(), O_RDWR | O_CLOEXEC);
  REQUIRE(fd >= 0);
  void* page = ::mmap(nullptr, sizeof(cudasim::ControlPage), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ::close(fd);
  REQUIRE(page != MAP_FAILED);
  page_ = static_cast<cudasim::ControlPage*>(page);
}

SimulatorControl::~SimulatorControl() {
  ::munmap(page_, sizeof(cudasim::ControlPage));
}

}  // namespace apportion::conformance
