#include "worker.hpp"

#include <apportion/apportion.hpp>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "../common/driver.h"

namespace {

constexpr std::size_t kWords = 16 * 1024;  // read back for an answer

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

// Stands for a model's run: the workspace is filled, and its last words come back.
unsigned long long answer(const Gpu& gpu, const apportion::Block& workspace, unsigned number) {
  std::vector<std::uint32_t> words(kWords);
  const std::size_t bytes = words.size() * sizeof words[0];
  const CUdeviceptr end = reinterpret_cast<CUdeviceptr>(workspace.data()) + workspace.size() - bytes;
  gpu.require(gpu->memset_d32(end, number, words.size()), "cuMemsetD32");
  gpu.require(gpu->copy_to_host(words.data(), end, bytes), "cuMemcpyDtoH");
  return std::accumulate(words.begin(), words.end(), 0ULL);
}

}  // namespace

unsigned long long expected_answer(unsigned number) {
  return static_cast<unsigned long long>(number) * kWords;
}

void serve(const std::string& job, std::size_t bytes) {
  apportion::Session::Options options;
  options.job = job;
  options.label = "service worker";
  apportion::Session session(options);
  // All the memory that requests will need, before the first one comes: what cannot be had fails the start,
  // and no request.
  const apportion::Block workspace = session.allocate(bytes);
  const Gpu gpu(session.info().device_uuid);
  std::puts("ready");
  std::fflush(stdout);
  for (unsigned number = 0; std::cin >> number;) {
    std::printf("%llu\n", answer(gpu, workspace, number));
    std::fflush(stdout);
  }
}
