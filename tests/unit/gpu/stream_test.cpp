// Events and streams over the simulated driver, whose streams do their work late.
#include "gpu/stream.hpp"

#include "gpu/context.hpp"
#include "tests/support/catch.hpp"
#include "tests/unit/gpu/simulated.hpp"

using namespace apportion;
using apportion::testing::FailingCall;
using apportion::testing::Simulated;

TEST_CASE("an event has passed once it was waited for, and a destroyed one is gone") {
  Simulated& sim = Simulated::instance();
  const DriverTable& driver = sim.device().driver();
  auto context = PrimaryContext::retain(sim.device());
  REQUIRE(context.ok());
  const auto destroyed = sim.did("cuEventDestroy");
  CUstream stream = nullptr;
  REQUIRE(driver.stream_create(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  {
    auto event = Event::create(driver);
    REQUIRE(event.ok());
    CUdeviceptr pointer = 0;
    REQUIRE(driver.mem_alloc(&pointer, (2_MiB).value) == CUDA_SUCCESS);
    REQUIRE(driver.memset_d8_async(pointer, 1, (2_MiB).value, stream) == CUDA_SUCCESS);
    REQUIRE(event->record(stream).ok());
    REQUIRE(event->wait().ok());
    const auto passed = event->passed();
    REQUIRE(passed.ok());
    CHECK(*passed);
    REQUIRE(synchronize_context(driver).ok());
    REQUIRE(driver.mem_free(pointer) == CUDA_SUCCESS);
  }
  CHECK(sim.did("cuEventDestroy") == destroyed + 1);
  REQUIRE(driver.stream_destroy(stream) == CUDA_SUCCESS);
}

TEST_CASE(
    "an event that the GPU has not reached is not passed, and a failing query is an error, not an answer") {
  Simulated& sim = Simulated::instance();
  auto context = PrimaryContext::retain(sim.device());
  REQUIRE(context.ok());
  auto event = Event::create(sim.device().driver());
  REQUIRE(event.ok());
  {
    const FailingCall failing("cuEventQuery", CUDA_ERROR_NOT_READY);
    const auto passed = event->passed();
    REQUIRE(passed.ok());
    CHECK_FALSE(*passed);
  }
  {
    const FailingCall failing("cuEventQuery", CUDA_ERROR_UNKNOWN);
    CHECK_FALSE(event->passed().ok());
  }
}

TEST_CASE("a capturing stream is told apart") {
  Simulated& sim = Simulated::instance();
  const DriverTable& driver = sim.device().driver();
  auto context = PrimaryContext::retain(sim.device());
  REQUIRE(context.ok());
  CUstream stream = nullptr;
  REQUIRE(driver.stream_create(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  const auto before = is_capturing(driver, stream);
  REQUIRE(before.ok());
  CHECK_FALSE(*before);
  REQUIRE(driver.stream_begin_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
  const auto during = is_capturing(driver, stream);
  REQUIRE(during.ok());
  CHECK(*during);
  CUgraph graph = nullptr;
  REQUIRE(driver.stream_end_capture(stream, &graph) == CUDA_SUCCESS);
  static_cast<void>(driver.graph_destroy(graph));
  REQUIRE(driver.stream_destroy(stream) == CUDA_SUCCESS);
}
