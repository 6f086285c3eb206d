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

cudasim::Folder* open_folder(const std::string& path) {
  std::string error;
  cudasim::Folder* folder = cudasim::Folder::open(path, {}, error);
  if (folder == nullptr) {
    std::fprintf(stderr, "%s\n", error.c_str());
    std::abort();
  }
  return folder;
}

}  // namespace

Simulated::Simulated() : path_(fresh_folder()), device_(open_device()), folder_(open_folder(path_)) {}

Simulated::~Simulated() {
  std::error_code ignored;
  std::filesystem::remove_all(std::filesystem::path(path_).parent_path(), ignored);
}

Simulated& Simulated::instance() {
  static Simulated simulated;
  return simulated;
}

void Simulated::fail(const char* function, CUresult code, cudasim::u64 nth, cudasim::u64 count) {
  armed_ = &folder_->page().functions[folder_->function_index(function)];
  cudasim::FaultRecord& fault = armed_->fault;
  fault.pid = 0;
  fault.code = code;
  fault.first = nth;
  fault.count = count;
  fault.signal_before = 0;
  fault.signal_after = 0;
  fault.seen = 0;
  fault.armed = 1;
}

void Simulated::stop_failing() {
  if (armed_ != nullptr) armed_->fault.armed = 0;
}

bool Simulated::failed() const {
  return armed_ != nullptr && armed_->fault.seen >= armed_->fault.first;
}

cudasim::u64 Simulated::did(const char* function) const {
  return folder_->page().functions[folder_->function_index(function)].did;
}

Simulated::Left Simulated::left() const {
  return {.used = Bytes{cudasim::used_bytes(*folder_, 0, cudasim::Census::kExact)},
          .allocations = folder_->page().live_slots,
          .addresses = did("cuMemAddressReserve") - did("cuMemAddressFree")};
}

}  // namespace apportion::testing
