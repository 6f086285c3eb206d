// Rule 36: a stream capture and the calls of other threads.
#include <thread>

#include "local.hpp"
#include "tests/support/catch.hpp"

namespace apportion::conformance {
namespace {

// What cuMemAlloc answers in another thread, in the mode that thread chose.
Answer allocate_in_thread(CUstreamCaptureMode mode) {
  Answer answer;
  CUcontext context = nullptr;
  REQUIRE(Answer{driver().ctx_get_current(&context)} == kOk);
  std::thread([&] {
    driver().ctx_set_current(context);
    driver().thread_exchange_stream_capture_mode(&mode);
    CUdeviceptr address = 0;
    answer = Answer{driver().mem_alloc(&address, kChunk)};
    if (answer.ok()) driver().mem_free(address);
  }).join();
  return answer;
}

class CapturingStream {
 public:
  CapturingStream() {
    REQUIRE(Answer{driver().stream_create(&stream_, CU_STREAM_NON_BLOCKING)} == kOk);
    REQUIRE(Answer{driver().stream_begin_capture(stream_, CU_STREAM_CAPTURE_MODE_GLOBAL)} == kOk);
  }
  ~CapturingStream() {
    static_cast<void>(end());
    driver().stream_destroy(stream_);
  }
  CapturingStream(const CapturingStream&) = delete;
  CapturingStream& operator=(const CapturingStream&) = delete;

  Answer end() {
    CUgraph graph = nullptr;
    const Answer answer{driver().stream_end_capture(stream_, &graph)};
    if (graph != nullptr) driver().graph_destroy(graph);
    return answer;
  }

 private:
  CUstream stream_ = nullptr;
};

}  // namespace

TEST_CASE(
    "rule 36: an unsafe call in another thread fails and spoils a GLOBAL capture; in RELAXED mode it does "
    "neither",
    "[rule36]") {
  use_device();
  if (driver().stream_begin_capture == nullptr) APPORTION_SKIP("the driver has no stream capture");
  {
    CapturingStream stream;
    CHECK(allocate_in_thread(CU_STREAM_CAPTURE_MODE_GLOBAL) == kCaptureUnsupported);
    CHECK(stream.end() == kCaptureInvalidated);
  }
  CapturingStream stream;
  CHECK(allocate_in_thread(CU_STREAM_CAPTURE_MODE_RELAXED) == kOk);
  CHECK(stream.end() == kOk);
}

}  // namespace apportion::conformance
