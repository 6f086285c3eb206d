// tests/unit/gpu/simulated.hpp.
#include "tests/unit/gpu/simulated.hpp"

#include <cstdio>
#include <cstdlib>
#include <filesystem>

namespace apportion::testing {
namespace {

std::string fresh_folder() {
  char path[] = "/dev/shm/apportion-test-gpu-XXXXXX";
  if (::mkdtemp(path) == nullptr) std::abort();
  const std::string folder = std::string(path) + "/device";
  ::setenv("CUDASIM_DIR", folder.c_str(), 1);
  ::unsetenv("CUDASIM_DEVICES");
  return folder;
}

Device open_device() {
  auto device = Device::open("sim:1GiB");
  if (!device) {
    std::fprintf(stderr, "%s\n", device.error().message.c_str());
    std::abort();
  }
  return *std::move(device);
}

std::unique_ptr<cudasim::Control> open_control(const std::string& path) {
  cudasim::FolderOptions options;
  options.device_bytes = {(1_GiB).value, (1_GiB).value};
  std::string error;
  auto control = cudasim::Control::open(path, options, error);
  if (control == nullptr) {
    std::fprintf(stderr, "%s\n", error.c_str());
    std::abort();
  }
  return control;
}

}  // namespace

Simulated::Simulated() : path_(fresh_folder()), control_(open_control(path_)), device_(open_device()) {}

Simulated::~Simulated() {
  std::error_code ignored;
  std::filesystem::remove_all(std::filesystem::path(path_).parent_path(), ignored);
}

Simulated& Simulated::instance() {
  static Simulated simulated;
  return simulated;
}

cudasim::u64 Simulated::did(const char* function) const {
  return control_->successes(function);
}

Simulated::Left Simulated::left() const {
  const cudasim::CensusReport census = control_->census();
  Left left{.used = Bytes{census.devices.at(0).used_bytes},
            .allocations = 0,
            .addresses = did("cuMemAddressReserve") - did("cuMemAddressFree")};
  for (const cudasim::AllocationInfo& allocation : census.allocations)
    left.allocations += allocation.referenced;
  return left;
}

FailingCall::FailingCall(const char* function, CUresult code, cudasim::u64 nth, cudasim::u64 count)
    : function_(function), made_by_then_(Simulated::instance().control().calls(function) + nth) {
  Simulated::instance().control().set_fault(function, {.code = code, .first = nth, .count = count});
}

FailingCall::~FailingCall() {
  Simulated::instance().control().clear_fault(function_);
}

bool FailingCall::met() const {
  return Simulated::instance().control().calls(function_) >= made_by_then_;
}

}  // namespace apportion::testing
