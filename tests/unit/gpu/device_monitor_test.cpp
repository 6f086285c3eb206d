// What NVML tells, over the simulated one.
#include "gpu/device_monitor.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "gpu/chunk.hpp"
#include "tests/support/catch.hpp"
#include "tests/unit/gpu/simulated.hpp"

using namespace apportion;
using apportion::testing::Simulated;

namespace {

// NVML's figures are a little late: whether `condition` holds before a generous deadline.
template <typename Condition>
bool comes_true(Condition&& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    ::sched_yield();
  }
  return true;
}

}  // namespace

TEST_CASE("memory and processes are read without a context") {
  Simulated& sim = Simulated::instance();
  const auto contexts = sim.did("cuDevicePrimaryCtxRetain") + sim.did("cuCtxCreate");
  auto monitor = DeviceMonitor::open(sim.device());
  REQUIRE(monitor.ok());
  const auto before = monitor->memory();
  REQUIRE(before.ok());
  CHECK(before->total == sim.device().facts().total);
  CHECK(before->free + before->used == before->total);

  auto chunk = ChunkMaker(sim.device()).make(128_MiB);
  REQUIRE(chunk.ok());
  CHECK(comes_true([&] {
    const auto after = monitor->memory();
    return after.ok() && after->used == before->used + 128_MiB;
  }));
  CHECK(comes_true([&] {
    const auto processes = monitor->processes();
    if (!processes) return false;
    const auto self = std::find_if(processes->begin(), processes->end(),
                                   [](const DeviceProcess& process) { return process.pid == ::getpid(); });
    return self != processes->end() && self->used.has_value() && *self->used >= 128_MiB;
  }));
  CHECK(sim.did("cuDevicePrimaryCtxRetain") + sim.did("cuCtxCreate") == contexts);
}

TEST_CASE("a simulated driver's NVML lies beside it, a real one's where the loader finds it") {
  CHECK(NvmlTable::path_for("/a/b/libcuda.so.1", true) == "/a/b/libnvidia-ml.so.1");
  CHECK(NvmlTable::path_for("/usr/lib/libcuda.so.1", false) == "libnvidia-ml.so.1");
  CHECK(NvmlTable::path_for("libcuda.so.1", true) == "libnvidia-ml.so.1");
}

TEST_CASE("a missing NVML is refused with its path") {
  const auto table = NvmlTable::load("/nonexistent/libnvidia-ml.so.1");
  REQUIRE_FALSE(table.ok());
  CHECK(table.error().code == Errc::not_found);
  CHECK(table.error().message.find("/nonexistent/libnvidia-ml.so.1") != std::string::npos);
}
