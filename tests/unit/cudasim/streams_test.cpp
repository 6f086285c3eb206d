// Streams, events, copies and memsets: when work runs, and in which order.
#include <poll.h>

#include <atomic>
#include <thread>
#include <vector>

#include "tests/support/approx.hpp"
#include "tests/unit/cudasim/simulator.hpp"

using namespace cudasim::testing;

namespace {

constexpr size_t kBytes = 4096;

struct Device {
  CUdeviceptr at = 0;
  explicit Device(size_t bytes = kBytes) {
    use_context();
    REQUIRE(DRIVER(cuMemAlloc)(&at, bytes) == CUDA_SUCCESS);
  }
  ~Device() { (void)DRIVER(cuMemFree)(at); }
  Device(const Device&) = delete;
};
struct Stream {
  CUstream handle = nullptr;
  explicit Stream(unsigned flags = CU_STREAM_NON_BLOCKING) {
    use_context();
    REQUIRE(DRIVER(cuStreamCreate)(&handle, flags) == CUDA_SUCCESS);
  }
  ~Stream() { (void)DRIVER(cuStreamDestroy)(handle); }
  Stream(const Stream&) = delete;
};
struct Event {
  CUevent handle = nullptr;
  explicit Event(unsigned flags = CU_EVENT_DEFAULT) {
    use_context();
    REQUIRE(DRIVER(cuEventCreate)(&handle, flags) == CUDA_SUCCESS);
  }
  ~Event() { (void)DRIVER(cuEventDestroy)(handle); }
  Event(const Event&) = delete;
};
// Pinned: written and read when the stream gets there, so it shows whether work has run.
struct Pinned {
  unsigned char* bytes = nullptr;
  Pinned() {
    use_context();
    void* memory = nullptr;
    REQUIRE(DRIVER(cuMemHostAlloc)(&memory, kBytes, 0) == CUDA_SUCCESS);
    bytes = static_cast<unsigned char*>(memory);
    std::fill(bytes, bytes + kBytes, 0xEE);
  }
  ~Pinned() { (void)DRIVER(cuMemFreeHost)(bytes); }
  Pinned(const Pinned&) = delete;
};

CUresult synchronise(CUstream stream) {
  return DRIVER(cuStreamSynchronize)(stream);
}
// Queries until the answer is not NOT_READY; how many it took.
int queries(CUstream stream) {
  for (int n = 1; n < 1'000'000; ++n) {
    const CUresult result = DRIVER(cuStreamQuery)(stream);
    if (result == CUDA_ERROR_NOT_READY) continue;
    REQUIRE(result == CUDA_SUCCESS);
    return n;
  }
  FAIL("the stream never finished");
  return 0;
}

}  // namespace

TEST_CASE("rule 31: a memset of device memory returns before the bytes are written") {
  Device memory;
  Pinned out;
  Stream stream;
  REQUIRE(DRIVER(cuMemsetD8Async)(memory.at, 0x5A, kBytes, stream.handle) == CUDA_SUCCESS);
  REQUIRE(DRIVER(cuMemcpyDtoHAsync)(out.bytes, memory.at, kBytes, stream.handle) == CUDA_SUCCESS);
  CHECK(out.bytes[0] == 0xEE);  // nothing ran at launch
  CHECK(DRIVER(cuStreamQuery)(stream.handle) == CUDA_ERROR_NOT_READY);
  CHECK(out.bytes[0] == 0xEE);
  REQUIRE(synchronise(stream.handle) == CUDA_SUCCESS);
  CHECK(out.bytes[0] == 0x5A);
  CHECK(out.bytes[kBytes - 1] == 0x5A);

  REQUIRE(DRIVER(cuMemsetD8)(memory.at, 0x11, kBytes) ==
          CUDA_SUCCESS);  // the form without Async, on the default stream
  CHECK(DRIVER(cuStreamQuery)(nullptr) == CUDA_ERROR_NOT_READY);
  CHECK(DRIVER(cuStreamSynchronize)(nullptr) == CUDA_SUCCESS);
}

TEST_CASE("a program that polls with queries gets there") {
  Device memory;
  Stream stream;
  REQUIRE(DRIVER(cuMemsetD8Async)(memory.at, 1, kBytes, stream.handle) == CUDA_SUCCESS);
  CHECK(queries(stream.handle) > 1);
  CHECK(DRIVER(cuStreamQuery)(stream.handle) == CUDA_SUCCESS);
}

TEST_CASE("memset writes patterns of 1, 2 and 4 bytes, rows with a pitch, and nothing beside them") {
  Device memory;
  std::vector<unsigned char> out(kBytes);
  REQUIRE(DRIVER(cuMemsetD8)(memory.at, 0xFF, kBytes) == CUDA_SUCCESS);
  REQUIRE(DRIVER(cuMemsetD16)(memory.at + 2, 0x1234, 2) == CUDA_SUCCESS);
  REQUIRE(DRIVER(cuMemsetD32)(memory.at + 8, 0xCAFEBABE, 1) == CUDA_SUCCESS);
  REQUIRE(DRIVER(cuMemsetD2D8)(memory.at + 64, 32, 7, 3, 2) == CUDA_SUCCESS);
  REQUIRE(DRIVER(cuMemcpyDtoH)(out.data(), memory.at, kBytes) == CUDA_SUCCESS);
  const std::vector<unsigned char> head(out.begin(), out.begin() + 13);
  CHECK(head == std::vector<unsigned char>{0xFF, 0xFF, 0x34, 0x12, 0x34, 0x12, 0xFF, 0xFF, 0xBE, 0xBA, 0xFE,
                                           0xCA, 0xFF});
  for (const size_t row : {64u, 96u}) {
    CHECK(out[row] == 7);
    CHECK(out[row + 2] == 7);
    CHECK(out[row + 3] == 0xFF);
  }
  CHECK(out[128] == 0xFF);
  CHECK(DRIVER(cuMemsetD32)(memory.at + 2, 1, 1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(DRIVER(cuMemsetD2D8)(memory.at, 2, 7, 3, 2) == CUDA_ERROR_INVALID_VALUE);
  int on_the_host = 0;
  CHECK(DRIVER(cuMemsetD8)(reinterpret_cast<CUdeviceptr>(&on_the_host), 1, 4) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("copies in every direction carry the bytes, in one dimension, two and three") {
  Device a, b;
  std::vector<unsigned char> in(kBytes), out(kBytes);
  for (size_t i = 0; i < kBytes; ++i)
    in[i] = static_cast<unsigned char>(i * 7);
  REQUIRE(DRIVER(cuMemcpyHtoD)(a.at, in.data(), kBytes) == CUDA_SUCCESS);
  REQUIRE(DRIVER(cuMemcpyDtoD)(b.at, a.at, kBytes) == CUDA_SUCCESS);
  REQUIRE(DRIVER(cuMemcpyDtoH)(out.data(), b.at, kBytes) == CUDA_SUCCESS);
  CHECK(out == in);

  std::fill(out.begin(), out.end(), 0);
  const auto host = [](void* p) { return reinterpret_cast<CUdeviceptr>(p); };
  REQUIRE(DRIVER(cuMemcpy)(host(out.data()), a.at, kBytes) == CUDA_SUCCESS);
  CHECK(out == in);

  REQUIRE(DRIVER(cuMemsetD8)(b.at, 0, kBytes) == CUDA_SUCCESS);
  CUDA_MEMCPY2D plane{};
  plane.srcMemoryType = CU_MEMORYTYPE_HOST;
  plane.srcHost = in.data();
  plane.srcPitch = 64;
  plane.srcXInBytes = 3;
  plane.srcY = 1;
  plane.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  plane.dstDevice = b.at;
  plane.dstPitch = 128;
  plane.WidthInBytes = 5;
  plane.Height = 2;
  REQUIRE(DRIVER(cuMemcpy2D)(&plane) == CUDA_SUCCESS);
  REQUIRE(DRIVER(cuMemcpyDtoH)(out.data(), b.at, kBytes) == CUDA_SUCCESS);
  CHECK(std::equal(out.begin(), out.begin() + 5, in.begin() + 64 + 3));
  CHECK(std::equal(out.begin() + 128, out.begin() + 133, in.begin() + 128 + 3));
  CHECK(out[5] == 0);
  CHECK(out[256] == 0);

  CUDA_MEMCPY3D box{};
  box.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  box.srcDevice = a.at;
  box.srcPitch = 16;
  box.srcHeight = 4;
  box.srcZ = 1;
  box.dstMemoryType = CU_MEMORYTYPE_HOST;
  box.dstHost = out.data();
  box.dstPitch = 8;
  box.dstHeight = 2;
  box.WidthInBytes = 8;
  box.Height = 2;
  box.Depth = 2;
  REQUIRE(DRIVER(cuMemcpy3D)(&box) == CUDA_SUCCESS);
  for (const size_t z : {0u, 1u}) {
    for (const size_t y : {0u, 1u}) {
      const auto* row = in.data() + (z + 1) * 64 + y * 16;
      CHECK(std::equal(row, row + 8, out.data() + z * 16 + y * 8));
    }
  }
  plane.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  CHECK(DRIVER(cuMemcpy2D)(&plane) == CUDA_ERROR_NOT_SUPPORTED);
}

TEST_CASE("an asynchronous copy of pageable memory has read it when the call returns") {
  Device memory;
  Stream stream;
  std::vector<unsigned char> in(kBytes, 0x21), out(kBytes);
  REQUIRE(DRIVER(cuMemcpyHtoDAsync)(memory.at, in.data(), kBytes, stream.handle) == CUDA_SUCCESS);
  std::fill(in.begin(), in.end(), 0x99);
  REQUIRE(DRIVER(cuMemcpyDtoHAsync)(out.data(), memory.at, kBytes, stream.handle) == CUDA_SUCCESS);
  CHECK(out[0] == 0x21);  // pageable: written before the call returned

  Pinned pinned;
  REQUIRE(DRIVER(cuMemcpyHtoDAsync)(memory.at, pinned.bytes, kBytes, stream.handle) == CUDA_SUCCESS);
  pinned.bytes[0] = 0x77;  // pinned: read when the copy runs
  REQUIRE(synchronise(stream.handle) == CUDA_SUCCESS);
  REQUIRE(DRIVER(cuMemcpyDtoH)(out.data(), memory.at, kBytes) == CUDA_SUCCESS);
  CHECK(out[0] == 0x77);
}

TEST_CASE("work on one stream runs in order, and another stream only waits where an event says so") {
  Device memory;
  Pinned out;
  Stream first, second;
  Event event;
  REQUIRE(DRIVER(cuMemsetD8Async)(memory.at, 1, kBytes, first.handle) == CUDA_SUCCESS);
  REQUIRE(DRIVER(cuMemsetD8Async)(memory.at, 2, kBytes, first.handle) == CUDA_SUCCESS);
  REQUIRE(DRIVER(cuEventRecord)(event.handle, first.handle) == CUDA_SUCCESS);
  CHECK(DRIVER(cuEventQuery)(event.handle) == CUDA_ERROR_NOT_READY);
  REQUIRE(DRIVER(cuStreamWaitEvent)(second.handle, event.handle, 0) == CUDA_SUCCESS);
  REQUIRE(DRIVER(cuMemcpyDtoHAsync)(out.bytes, memory.at, kBytes, second.handle) == CUDA_SUCCESS);
  REQUIRE(synchronise(second.handle) == CUDA_SUCCESS);  // brings the first stream along
  CHECK(out.bytes[0] == 2);
  CHECK(DRIVER(cuEventQuery)(event.handle) == CUDA_SUCCESS);

  // Without an event the second stream reads what is there, although the first was given work before.
  REQUIRE(DRIVER(cuMemsetD8Async)(memory.at, 3, kBytes, first.handle) == CUDA_SUCCESS);
  REQUIRE(DRIVER(cuMemcpyDtoHAsync)(out.bytes, memory.at, kBytes, second.handle) == CUDA_SUCCESS);
  REQUIRE(synchronise(second.handle) == CUDA_SUCCESS);
  CHECK(out.bytes[0] == 2);
  REQUIRE(synchronise(first.handle) == CUDA_SUCCESS);
}

TEST_CASE(
    "the legacy default stream waits for blocking streams and holds them back; non-blocking ones do not "
    "care") {
  Device memory;
  Pinned out;
  Stream blocking(CU_STREAM_DEFAULT), free_running;
  REQUIRE(DRIVER(cuMemsetD8Async)(memory.at, 1, kBytes, blocking.handle) == CUDA_SUCCESS);
  REQUIRE(DRIVER(cuMemcpyDtoHAsync)(out.bytes, memory.at, kBytes, nullptr) == CUDA_SUCCESS);
  REQUIRE(synchronise(nullptr) == CUDA_SUCCESS);
  CHECK(out.bytes[0] == 1);

  REQUIRE(DRIVER(cuMemsetD8)(memory.at, 2, kBytes) == CUDA_SUCCESS);
  REQUIRE(DRIVER(cuMemcpyDtoHAsync)(out.bytes, memory.at, kBytes, blocking.handle) == CUDA_SUCCESS);
  REQUIRE(synchronise(blocking.handle) == CUDA_SUCCESS);
  CHECK(out.bytes[0] == 2);

  REQUIRE(DRIVER(cuMemsetD8)(memory.at, 3, kBytes) == CUDA_SUCCESS);
  REQUIRE(DRIVER(cuMemcpyDtoHAsync)(out.bytes, memory.at, kBytes, free_running.handle) == CUDA_SUCCESS);
  REQUIRE(synchronise(free_running.handle) == CUDA_SUCCESS);
  CHECK(out.bytes[0] == 2);
  REQUIRE(DRIVER(cuCtxSynchronize)() == CUDA_SUCCESS);
}

TEST_CASE("a null stream means the thread's own stream in the per-thread forms") {
  Device memory;
  Pinned out;
  const auto query = driver_symbol<CUresult (*)(CUstream)>("cuStreamQuery_ptsz");
  const auto fill = driver_symbol<CUresult (*)(CUdeviceptr, unsigned char, size_t)>("cuMemsetD8_v2_ptds");
  REQUIRE(synchronise(CU_STREAM_PER_THREAD) == CUDA_SUCCESS);
  REQUIRE(fill(memory.at, 5, kBytes) == CUDA_SUCCESS);
  CHECK(query(nullptr) == CUDA_ERROR_NOT_READY);
  std::thread([&] {
    use_context();
    CHECK(query(nullptr) == CUDA_SUCCESS);  // another thread's is another stream
  }).join();
  CHECK(DRIVER(cuStreamSynchronize)(CU_STREAM_PER_THREAD) == CUDA_SUCCESS);
  CHECK(query(nullptr) == CUDA_SUCCESS);
}

TEST_CASE("events time the virtual clock, and only those that can be asked") {
  Device memory(1 << 20);
  Stream stream;
  Event start, end, never, untimed(CU_EVENT_DISABLE_TIMING);
  float ms = -1;
  CHECK(DRIVER(cuEventQuery)(never.handle) == CUDA_SUCCESS);
  CHECK(DRIVER(cuEventSynchronize)(never.handle) == CUDA_SUCCESS);
  REQUIRE(DRIVER(cuEventRecord)(start.handle, stream.handle) == CUDA_SUCCESS);
  REQUIRE(DRIVER(cuMemsetD8Async)(memory.at, 1, 1 << 20, stream.handle) == CUDA_SUCCESS);
  REQUIRE(DRIVER(cuEventRecord)(end.handle, stream.handle) == CUDA_SUCCESS);
  REQUIRE(DRIVER(cuEventRecord)(untimed.handle, stream.handle) == CUDA_SUCCESS);
  CHECK(DRIVER(cuEventElapsedTime)(&ms, start.handle, end.handle) == CUDA_ERROR_NOT_READY);
  REQUIRE(DRIVER(cuEventSynchronize)(untimed.handle) == CUDA_SUCCESS);
  REQUIRE(DRIVER(cuEventElapsedTime)(&ms, start.handle, end.handle) == CUDA_SUCCESS);
  CHECK(ms == Approx(0.003048).epsilon(0.01));  // 2 us to start, 1 MiB at 1 TB/s
  CHECK(DRIVER(cuEventElapsedTime)(&ms, start.handle, untimed.handle) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(DRIVER(cuEventElapsedTime)(&ms, never.handle, end.handle) == CUDA_ERROR_INVALID_HANDLE);
}

TEST_CASE("handles that are no stream and no event are refused") {
  use_context();
  CUstream stream = nullptr;
  CUevent event = nullptr;
  REQUIRE(DRIVER(cuStreamCreate)(&stream, CU_STREAM_DEFAULT) == CUDA_SUCCESS);
  REQUIRE(DRIVER(cuEventCreate)(&event, CU_EVENT_DEFAULT) == CUDA_SUCCESS);
  REQUIRE(DRIVER(cuStreamDestroy)(stream) == CUDA_SUCCESS);
  REQUIRE(DRIVER(cuEventDestroy)(event) == CUDA_SUCCESS);
  CHECK(DRIVER(cuStreamDestroy)(stream) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(DRIVER(cuStreamSynchronize)(stream) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(DRIVER(cuStreamDestroy)(nullptr) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(DRIVER(cuEventRecord)(event, nullptr) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(DRIVER(cuEventQuery)(event) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(DRIVER(cuStreamCreate)(&stream, 2) == CUDA_ERROR_INVALID_VALUE);
  CHECK(DRIVER(cuStreamCreate)(nullptr, 0) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("a host function runs in stream order and may not call the driver") {
  Device memory;
  Pinned out;
  Stream stream;
  struct Seen {
    unsigned char* bytes;
    CUstream stream;
    int byte = -1;
    CUresult inside = CUDA_SUCCESS;
  } seen{out.bytes, stream.handle};
  REQUIRE(DRIVER(cuMemsetD8Async)(memory.at, 9, kBytes, stream.handle) == CUDA_SUCCESS);
  REQUIRE(DRIVER(cuMemcpyDtoHAsync)(out.bytes, memory.at, kBytes, stream.handle) == CUDA_SUCCESS);
  const CUhostFn look = [](void* data) {
    auto& at = *static_cast<Seen*>(data);
    at.byte = at.bytes[0];
    at.inside = DRIVER(cuStreamSynchronize)(at.stream);
  };
  REQUIRE(DRIVER(cuLaunchHostFunc)(stream.handle, look, &seen) == CUDA_SUCCESS);
  REQUIRE(synchronise(stream.handle) == CUDA_SUCCESS);
  CHECK(seen.byte == 9);
  CHECK(seen.inside == CUDA_ERROR_NOT_PERMITTED);
}

TEST_CASE("a program that waits for its host function without calling the driver is not left waiting") {
  Stream stream;
  std::atomic<bool> ran{false};
  const CUhostFn set = [](void* data) { *static_cast<std::atomic<bool>*>(data) = true; };
  REQUIRE(DRIVER(cuLaunchHostFunc)(stream.handle, set, &ran) == CUDA_SUCCESS);
  for (int i = 0; i < 3000 && !ran; ++i)
    (void)::poll(nullptr, 0, 5);
  CHECK(ran);
}

TEST_CASE("work given from many threads to many streams all runs, once") {
  const CUcontext context = use_context();
  constexpr int kThreads = 4, kPieces = 200;
  std::atomic<int> ran{0};
  std::atomic<int> refused{0};  // assertions are the main thread's
  std::vector<std::thread> threads;
  Stream shared;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      const auto must = [&refused](CUresult result) {
        if (result != CUDA_SUCCESS) ++refused;
      };
      must(DRIVER(cuCtxSetCurrent)(context));
      CUstream own = nullptr;
      must(DRIVER(cuStreamCreate)(&own, CU_STREAM_DEFAULT));
      const CUhostFn count = [](void* data) { ++*static_cast<std::atomic<int>*>(data); };
      for (int i = 0; i < kPieces; ++i) {
        const CUstream streams[] = {own, shared.handle, nullptr};
        must(DRIVER(cuLaunchHostFunc)(streams[i % 3], count, &ran));
        if (i % 16 == 0) must(DRIVER(cuStreamSynchronize)(streams[(i / 16) % 3]));
      }
      must(DRIVER(cuStreamDestroy)(own));
    });
  }
  for (auto& thread : threads)
    thread.join();
  REQUIRE(DRIVER(cuCtxSynchronize)() == CUDA_SUCCESS);
  CHECK(refused == 0);
  CHECK(ran == kThreads * kPieces);
}
