// Rule 36, over the simulated driver.
#include "gpu/capture_guard.hpp"

#include <thread>

#include "gpu/context.hpp"
#include "tests/support/catch.hpp"
#include "tests/unit/gpu/simulated.hpp"

using namespace apportion;
using apportion::testing::Simulated;

namespace {

// A stream of `context` captured in GLOBAL mode by this thread while `body` runs on another. Returns whether
// the capture survived.
template <typename Body>
bool capture_survives(const DriverTable& driver, CUcontext context, Body&& body) {
  CUstream stream = nullptr;
  REQUIRE(driver.stream_create(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  REQUIRE(driver.stream_begin_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
  std::thread([&] {
    static_cast<void>(driver.ctx_set_current(context));
    body();
  }).join();
  CUgraph graph = nullptr;
  const bool survived = driver.stream_end_capture(stream, &graph) == CUDA_SUCCESS;
  if (graph != nullptr) static_cast<void>(driver.graph_destroy(graph));
  static_cast<void>(driver.stream_destroy(stream));
  return survived;
}

}  // namespace

TEST_CASE("rule 36: an allocation of another thread spoils a capture, and does not under the guard") {
  const DriverTable& driver = Simulated::instance().device().driver();
  auto context = PrimaryContext::retain(Simulated::instance().device());
  REQUIRE(context.ok());
  CUresult unguarded = CUDA_SUCCESS;
  CHECK_FALSE(capture_survives(driver, context->get(), [&] {
    CUdeviceptr pointer = 0;
    unguarded = driver.mem_alloc(&pointer, (2_MiB).value);
  }));
  CHECK(unguarded == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CUresult guarded = CUDA_ERROR_UNKNOWN;
  CHECK(capture_survives(driver, context->get(), [&] {
    const CaptureGuard guard(driver);
    const CaptureGuard nested(driver);
    CUdeviceptr pointer = 0;
    guarded = driver.mem_alloc(&pointer, (2_MiB).value);
    if (guarded == CUDA_SUCCESS) guarded = driver.mem_free(pointer);
  }));
  CHECK(guarded == CUDA_SUCCESS);
}

TEST_CASE("the guard puts the thread's own mode back") {
  const DriverTable& driver = Simulated::instance().device().driver();
  {
    const CaptureGuard guard(driver);
    const CaptureGuard nested(driver);
  }
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  REQUIRE(driver.thread_exchange_stream_capture_mode(&mode) == CUDA_SUCCESS);
  CHECK(mode == CU_STREAM_CAPTURE_MODE_GLOBAL);  // what a thread starts with
}
