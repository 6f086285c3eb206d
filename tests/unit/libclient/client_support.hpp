// What the tests of the client share: attaching to a fake broker, failing driver calls, looking at what is
// left.
#pragma once

#include <memory>
#include <string>

#include "libclient/client.hpp"
#include "tests/support/catch.hpp"
#include "tests/unit/libclient/fake_broker.hpp"

namespace apportion::testing {

inline std::unique_ptr<Client> attach(const FakeBroker& broker, bool reclaimable = false) {
  Result<std::unique_ptr<Client>> client = Client::attach({"trainer", "test", broker.path(), reclaimable}, 1);
  if (!client) FAIL(client.error().message);
  return *std::move(client);
}

inline Address must_allocate(Client& client, Bytes bytes, bool exact = false) {
  const Result<Address> block = client.allocate(bytes, 0, exact);
  if (!block) FAIL(block.error().message);
  return *block;
}

inline cudasim::Control& control() {
  return SimulatedDevice::instance().folder->control();
}

// Fails the nth call of a driver function once, in any process.
class Failing {
 public:
  Failing(const char* function, int code, std::uint64_t nth = 1, std::uint64_t count = 1)
      : function_(function) {
    cudasim::Fault fault;
    fault.code = code;
    fault.first = nth;
    fault.count = count;
    control().set_fault(function, fault);
  }
  ~Failing() { control().clear_fault(function_); }
  Failing(const Failing&) = delete;
  Failing& operator=(const Failing&) = delete;

 private:
  std::string function_;
};

// Writes and reads back the first and last bytes, with the context that the client would use.
inline bool usable(Address block, Bytes bytes) {
  const DriverTable& driver = SimulatedDevice::instance().device->driver();
  CUcontext context = nullptr;
  CUcontext popped = nullptr;
  if (driver.device_primary_ctx_retain(&context, 0) != CUDA_SUCCESS) return false;
  driver.ctx_push_current(context);
  bool good = true;
  for (const Address at : {block, block + bytes.value - 8}) {
    const std::uint64_t written = at * 0x9e3779b97f4a7c15;
    std::uint64_t read = 0;
    good = good && driver.memcpy_htod(at, &written, 8) == CUDA_SUCCESS &&
           driver.memcpy_dtoh(&read, at, 8) == CUDA_SUCCESS && read == written;
  }
  driver.ctx_pop_current(&popped);
  driver.device_primary_ctx_release(0);
  return good;
}

// Open descriptors, with the broker between two messages.
inline std::size_t quiet_fds(FakeBroker& broker) {
  static_cast<void>(broker.seen());
  return open_fds();
}

inline std::uint64_t referenced() {
  return control().census().referenced_bytes;
}

// A primary context current on this thread, with two streams.
struct Gpu {
  Gpu() : driver(SimulatedDevice::instance().device->driver()) {
    REQUIRE(driver.device_primary_ctx_retain(&context, 0) == CUDA_SUCCESS);
    REQUIRE(driver.ctx_push_current(context) == CUDA_SUCCESS);
    for (CUstream& stream : streams)
      REQUIRE(driver.stream_create(&stream, 0) == CUDA_SUCCESS);
  }
  ~Gpu() {
    for (const CUstream stream : streams)
      driver.stream_destroy(stream);
    CUcontext popped = nullptr;
    driver.ctx_pop_current(&popped);
    driver.device_primary_ctx_release(0);
  }
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  void work_on(Address block, Bytes bytes, int stream) const {
    REQUIRE(driver.memset_d8_async(block, 0x5a, bytes.value, streams[stream]) == CUDA_SUCCESS);
  }
  [[nodiscard]] bool busy(int stream) const {
    return driver.stream_query(streams[stream]) == CUDA_ERROR_NOT_READY;
  }
  [[nodiscard]] Stream handle(int stream) const { return reinterpret_cast<std::uintptr_t>(streams[stream]); }

  const DriverTable& driver;
  CUcontext context = nullptr;
  CUstream streams[2] = {};
};

}  // namespace apportion::testing
