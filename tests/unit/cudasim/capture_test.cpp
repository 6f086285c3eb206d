// Stream capture, graphs, and what a capture forbids (rule 36).
#include <thread>
#include <vector>

#include "tests/unit/cudasim/simulator.hpp"

using namespace cudasim::testing;

namespace {

constexpr size_t kBytes = 4096;

struct Scene {
  CUdeviceptr memory = 0;
  CUstream stream = nullptr, other = nullptr;
  CUevent event = nullptr;
  Scene() {
    use_context();
    REQUIRE(DRIVER(cuMemAlloc)(&memory, kBytes) == CUDA_SUCCESS);
    REQUIRE(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    REQUIRE(DRIVER(cuStreamCreate)(&other, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    REQUIRE(DRIVER(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
  }
  ~Scene() {
    CUgraph graph = nullptr;
    (void)DRIVER(cuStreamEndCapture)(stream, &graph);
    (void)DRIVER(cuStreamDestroy)(stream);
    (void)DRIVER(cuStreamDestroy)(other);
    (void)DRIVER(cuEventDestroy)(event);
    (void)DRIVER(cuMemFree)(memory);
  }
  CUresult begin(CUstreamCaptureMode mode) { return DRIVER(cuStreamBeginCapture)(stream, mode); }
  CUresult end(CUgraph* graph) { return DRIVER(cuStreamEndCapture)(stream, graph); }
  unsigned char first_byte() {
    unsigned char byte = 0;
    REQUIRE(DRIVER(cuMemcpyDtoH)(&byte, memory, 1) == CUDA_SUCCESS);
    return byte;
  }
  CUresult fill(unsigned char value, CUstream on) {
    return DRIVER(cuMemsetD8Async)(memory, value, kBytes, on);
  }
};

// An unsafe call.
CUresult allocate() {
  CUdeviceptr address = 0;
  const CUresult result = DRIVER(cuMemAlloc)(&address, kBytes);
  if (result == CUDA_SUCCESS) (void)DRIVER(cuMemFree)(address);
  return result;
}
CUresult allocate_elsewhere(CUstreamCaptureMode mode) {
  CUresult result = CUDA_ERROR_UNKNOWN;
  std::thread([&] {
    use_context();
    REQUIRE(DRIVER(cuThreadExchangeStreamCaptureMode)(&mode) == CUDA_SUCCESS);
    result = allocate();
  }).join();
  return result;
}

}  // namespace

TEST_CASE("a captured stream records, and its graph runs at each launch") {
  Scene scene;
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  CUstreamCaptureStatus status{};
  REQUIRE(scene.fill(1, scene.stream) == CUDA_SUCCESS);
  REQUIRE(DRIVER(cuStreamSynchronize)(scene.stream) == CUDA_SUCCESS);
  REQUIRE(scene.begin(CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
  REQUIRE(DRIVER(cuStreamIsCapturing)(scene.stream, &status) == CUDA_SUCCESS);
  CHECK(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
  REQUIRE(scene.fill(2, scene.stream) == CUDA_SUCCESS);
  REQUIRE(scene.end(&graph) == CUDA_SUCCESS);
  REQUIRE(DRIVER(cuStreamIsCapturing)(scene.stream, &status) == CUDA_SUCCESS);
  CHECK(status == CU_STREAM_CAPTURE_STATUS_NONE);
  CHECK(scene.first_byte() == 1);

  size_t nodes = 0;
  REQUIRE(DRIVER(cuGraphGetNodes)(graph, nullptr, &nodes) == CUDA_SUCCESS);
  CHECK(nodes == 1);
  REQUIRE(DRIVER(cuGraphInstantiate)(&exec, graph, 0) == CUDA_SUCCESS);
  REQUIRE(DRIVER(cuGraphDestroy)(graph) == CUDA_SUCCESS);
  for (int launch = 0; launch < 2; ++launch) {
    REQUIRE(scene.fill(1, scene.stream) == CUDA_SUCCESS);
    REQUIRE(DRIVER(cuGraphLaunch)(exec, scene.stream) == CUDA_SUCCESS);
    REQUIRE(DRIVER(cuStreamSynchronize)(scene.stream) == CUDA_SUCCESS);
    CHECK(scene.first_byte() == 2);
  }
  CHECK(DRIVER(cuGraphExecDestroy)(exec) == CUDA_SUCCESS);
  CHECK(DRIVER(cuGraphLaunch)(exec, scene.stream) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("rule 36: an unsafe call on any thread fails during a GLOBAL capture and spoils it") {
  for (const bool elsewhere : {false, true}) {
    Scene scene;
    CUgraph graph = nullptr;
    CUstreamCaptureStatus status{};
    REQUIRE(scene.begin(CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
    const CUresult result = elsewhere ? allocate_elsewhere(CU_STREAM_CAPTURE_MODE_GLOBAL) : allocate();
    CHECK(result == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    REQUIRE(DRIVER(cuStreamIsCapturing)(scene.stream, &status) == CUDA_SUCCESS);
    CHECK(status == CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    CHECK(scene.fill(1, scene.stream) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CHECK(scene.end(&graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CHECK(graph == nullptr);
    CHECK(allocate() == CUDA_SUCCESS);
  }
}

TEST_CASE("rule 36: a thread in RELAXED mode may make unsafe calls; the mode before comes back") {
  Scene scene;
  CUgraph graph = nullptr;
  REQUIRE(scene.begin(CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
  CHECK(allocate_elsewhere(CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
  CHECK(allocate_elsewhere(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) == CUDA_SUCCESS);
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  REQUIRE(DRIVER(cuThreadExchangeStreamCaptureMode)(&mode) == CUDA_SUCCESS);
  CHECK(mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
  CHECK(allocate() == CUDA_SUCCESS);
  REQUIRE(DRIVER(cuThreadExchangeStreamCaptureMode)(&mode) == CUDA_SUCCESS);
  CHECK(mode == CU_STREAM_CAPTURE_MODE_RELAXED);
  REQUIRE(scene.fill(1, scene.stream) == CUDA_SUCCESS);
  CHECK(scene.end(&graph) == CUDA_SUCCESS);
  CHECK(DRIVER(cuGraphDestroy)(graph) == CUDA_SUCCESS);
}

TEST_CASE("a THREAD_LOCAL capture forbids only its own thread, a RELAXED one nobody") {
  {
    Scene scene;
    CUgraph graph = nullptr;
    REQUIRE(scene.begin(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) == CUDA_SUCCESS);
    CHECK(allocate_elsewhere(CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
    CHECK(allocate() == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CHECK(scene.end(&graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  }
  Scene scene;
  CUgraph graph = nullptr;
  REQUIRE(scene.begin(CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
  CHECK(allocate() == CUDA_SUCCESS);
  CHECK(scene.end(&graph) == CUDA_SUCCESS);
}

TEST_CASE("synchronising or asking a captured stream, event or context fails and spoils the capture") {
  SECTION("cuStreamSynchronize") {
    Scene scene;
    CUgraph graph = nullptr;
    REQUIRE(scene.begin(CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
    CHECK(DRIVER(cuStreamSynchronize)(scene.stream) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CHECK(scene.end(&graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  }
  SECTION("cuCtxSynchronize") {
    Scene scene;
    CUgraph graph = nullptr;
    REQUIRE(scene.begin(CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
    CHECK(DRIVER(cuCtxSynchronize)() == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CHECK(scene.end(&graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  }
  SECTION("cuEventSynchronize") {
    Scene scene;
    CUgraph graph = nullptr;
    REQUIRE(scene.begin(CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
    REQUIRE(DRIVER(cuEventRecord)(scene.event, scene.stream) == CUDA_SUCCESS);
    CHECK(DRIVER(cuEventSynchronize)(scene.event) == CUDA_ERROR_CAPTURED_EVENT);
    CHECK(scene.end(&graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  }
  SECTION("work on the legacy stream beside a blocking stream") {
    Scene scene;
    CUstream blocking = nullptr;
    CUgraph graph = nullptr;
    REQUIRE(DRIVER(cuStreamCreate)(&blocking, CU_STREAM_DEFAULT) == CUDA_SUCCESS);
    REQUIRE(DRIVER(cuStreamBeginCapture)(blocking, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
    CHECK(scene.fill(1, nullptr) == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    CHECK(DRIVER(cuStreamEndCapture)(blocking, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CHECK(DRIVER(cuStreamDestroy)(blocking) == CUDA_SUCCESS);
  }
}

TEST_CASE(
    "a stream that waits for a captured event joins the capture, and must be waited for before its end") {
  for (const bool joined : {true, false}) {
    Scene scene;
    CUgraph graph = nullptr;
    CUstreamCaptureStatus status{};
    REQUIRE(scene.begin(CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
    REQUIRE(DRIVER(cuEventRecord)(scene.event, scene.stream) == CUDA_SUCCESS);
    REQUIRE(DRIVER(cuStreamWaitEvent)(scene.other, scene.event, 0) == CUDA_SUCCESS);
    REQUIRE(DRIVER(cuStreamIsCapturing)(scene.other, &status) == CUDA_SUCCESS);
    CHECK(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    REQUIRE(scene.fill(3, scene.other) == CUDA_SUCCESS);
    if (joined) {
      REQUIRE(DRIVER(cuEventRecord)(scene.event, scene.other) == CUDA_SUCCESS);
      REQUIRE(DRIVER(cuStreamWaitEvent)(scene.stream, scene.event, 0) == CUDA_SUCCESS);
    }
    CHECK(scene.end(&graph) == (joined ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNJOINED));
    REQUIRE(DRIVER(cuStreamIsCapturing)(scene.other, &status) == CUDA_SUCCESS);
    CHECK(status == CU_STREAM_CAPTURE_STATUS_NONE);
  }
}

TEST_CASE("begin and end of a capture refuse what makes no sense") {
  Scene scene;
  CUgraph graph = nullptr;
  CHECK(DRIVER(cuStreamBeginCapture)(nullptr, CU_STREAM_CAPTURE_MODE_GLOBAL) ==
        CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CHECK(scene.end(&graph) == CUDA_ERROR_ILLEGAL_STATE);
  REQUIRE(scene.begin(CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
  CHECK(scene.begin(CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_ERROR_ILLEGAL_STATE);
  CUresult elsewhere = CUDA_SUCCESS;
  std::thread([&] {
    use_context();
    elsewhere = scene.end(&graph);
  }).join();
  CHECK(elsewhere == CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
}
