// The pending-work check: memory taken away while work that the host has not waited for may still use it.
#include "cudasim/control.hpp"
#include "cudasim/driver/launch.hpp"
#include "tests/unit/cudasim/simulator.hpp"

using namespace cudasim::testing;

namespace {

constexpr size_t kBytes = 2 << 20;

cudasim::Control& control() {
  static const std::unique_ptr<cudasim::Control> opened = [] {
    use_context();
    std::string error;
    auto made = cudasim::Control::open(cudasim::default_folder(), {}, error);
    INFO(error);
    REQUIRE(made != nullptr);
    return made;
  }();
  return *opened;
}
cudasim::u64 violations() {
  return control().violations();
}

// One mapped chunk, a stream and a kernel.
struct Chunk {
  CUdeviceptr at = 0;
  CUmemGenericAllocationHandle handle = 0;
  CUstream stream = nullptr, other = nullptr;
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  bool mapped = true;
  Chunk() {
    use_context();
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    REQUIRE(DRIVER(cuMemAddressReserve)(&at, kBytes, 0, 0, 0) == CUDA_SUCCESS);
    REQUIRE(DRIVER(cuMemCreate)(&handle, kBytes, &properties, 0) == CUDA_SUCCESS);
    REQUIRE(DRIVER(cuMemMap)(at, kBytes, 0, handle, 0) == CUDA_SUCCESS);
    REQUIRE(DRIVER(cuMemSetAccess)(at, kBytes, &access, 1) == CUDA_SUCCESS);
    REQUIRE(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    REQUIRE(DRIVER(cuStreamCreate)(&other, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    REQUIRE(DRIVER(cuModuleLoadData)(&module, "image") == CUDA_SUCCESS);
    REQUIRE(DRIVER(cuModuleGetFunction)(&function, module, "kernel") == CUDA_SUCCESS);
  }
  ~Chunk() {
    (void)DRIVER(cuStreamSynchronize)(stream);
    (void)DRIVER(cuStreamSynchronize)(other);
    if (mapped) (void)unmap();
    (void)DRIVER(cuMemRelease)(handle);
    (void)DRIVER(cuMemAddressFree)(at, kBytes);
    (void)DRIVER(cuStreamDestroy)(stream);
    (void)DRIVER(cuStreamDestroy)(other);
    (void)DRIVER(cuModuleUnload)(module);
  }
  CUresult unmap() {
    mapped = false;
    return DRIVER(cuMemUnmap)(at, kBytes);
  }
  void launch(CUstream on) {
    DRIVER(cudasim_launch_uses)(at, kBytes);
    REQUIRE(DRIVER(cuLaunchKernel)(function, 1, 1, 1, 1, 1, 1, 0, on, nullptr, nullptr) == CUDA_SUCCESS);
  }
};

}  // namespace

TEST_CASE("unmapping after the stream was synchronised is no violation") {
  Chunk chunk;
  REQUIRE(DRIVER(cuMemsetD8Async)(chunk.at, 1, 64, chunk.stream) == CUDA_SUCCESS);
  const auto before = violations();
  CHECK(DRIVER(cuStreamSynchronize)(chunk.stream) == CUDA_SUCCESS);
  REQUIRE(chunk.unmap() == CUDA_SUCCESS);
  CHECK(violations() == before);
}

TEST_CASE("rule 18: unmapping what a kernel uses counts, is named, and the kernel's context is lost") {
  use_context();
  const auto before = violations();
  CUcontext own = nullptr;
  REQUIRE(DRIVER(cuCtxCreate)(&own, nullptr, 0, 0) == CUDA_SUCCESS);
  {
    CUstream stream = nullptr;
    CUdeviceptr at = 0;
    CUmemGenericAllocationHandle handle = 0;
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    REQUIRE(DRIVER(cuMemAddressReserve)(&at, kBytes, 0, 0, 0) == CUDA_SUCCESS);
    REQUIRE(DRIVER(cuMemCreate)(&handle, kBytes, &properties, 0) == CUDA_SUCCESS);
    REQUIRE(DRIVER(cuMemMap)(at, kBytes, 0, handle, 0) == CUDA_SUCCESS);
    REQUIRE(DRIVER(cuMemSetAccess)(at, kBytes, &access, 1) == CUDA_SUCCESS);
    REQUIRE(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    REQUIRE(DRIVER(cuModuleLoadData)(&module, "image") == CUDA_SUCCESS);
    REQUIRE(DRIVER(cuModuleGetFunction)(&function, module, "kernel") == CUDA_SUCCESS);
    DRIVER(cudasim_launch_uses)(at + 4096, 16);
    REQUIRE(DRIVER(cuLaunchKernel)(function, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr) == CUDA_SUCCESS);
    CHECK(DRIVER(cuMemUnmap)(at, kBytes) == CUDA_SUCCESS);  // does not wait
    CHECK(violations() == before + 1);
    // Rule 19: the kernel runs into the hole, and its context is of no use any more.
    CHECK(DRIVER(cuStreamSynchronize)(stream) == CUDA_ERROR_ILLEGAL_ADDRESS);
    CUdeviceptr more = 0;
    CHECK(DRIVER(cuMemAlloc)(&more, 16) == CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK(DRIVER(cuMemRelease)(handle) == CUDA_ERROR_ILLEGAL_ADDRESS);
  }
  REQUIRE(DRIVER(cuCtxDestroy)(own) == CUDA_SUCCESS);
  use_context();
  CUdeviceptr fine = 0;
  REQUIRE(DRIVER(cuMemAlloc)(&fine, 16) == CUDA_SUCCESS);  // the other context is unharmed
  CHECK(DRIVER(cuMemFree)(fine) == CUDA_SUCCESS);
}

TEST_CASE("a kernel that writes does so when it runs, not when it is launched") {
  Chunk chunk;
  unsigned char byte = 0xFF;
  REQUIRE(DRIVER(cuMemsetD8)(chunk.at, 0, 64) == CUDA_SUCCESS);
  REQUIRE(DRIVER(cuCtxSynchronize)() == CUDA_SUCCESS);
  DRIVER(cudasim_launch_writes)(chunk.at, 64, 0x42);
  REQUIRE(DRIVER(cuLaunchKernel)(chunk.function, 1, 1, 1, 1, 1, 1, 0, chunk.stream, nullptr, nullptr) ==
          CUDA_SUCCESS);
  REQUIRE(DRIVER(cuMemcpyDtoH)(&byte, chunk.at, 1) == CUDA_SUCCESS);
  CHECK(byte == 0);
  REQUIRE(DRIVER(cuStreamSynchronize)(chunk.stream) == CUDA_SUCCESS);
  REQUIRE(DRIVER(cuMemcpyDtoH)(&byte, chunk.at, 1) == CUDA_SUCCESS);
  CHECK(byte == 0x42);
}

TEST_CASE("rule 31: a scrub that is not ordered behind a kernel of another stream is a violation") {
  Chunk chunk;
  CUevent event = nullptr;
  REQUIRE(DRIVER(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
  auto before = violations();

  // Ordered by an event, by the same stream, or by the host: quiet.
  chunk.launch(chunk.other);
  REQUIRE(DRIVER(cuEventRecord)(event, chunk.other) == CUDA_SUCCESS);
  REQUIRE(DRIVER(cuStreamWaitEvent)(chunk.stream, event, 0) == CUDA_SUCCESS);
  REQUIRE(DRIVER(cuMemsetD8Async)(chunk.at, 0, kBytes, chunk.stream) == CUDA_SUCCESS);
  REQUIRE(DRIVER(cuMemsetD8Async)(chunk.at, 0, kBytes, chunk.stream) == CUDA_SUCCESS);
  REQUIRE(DRIVER(cuStreamSynchronize)(chunk.stream) == CUDA_SUCCESS);
  REQUIRE(DRIVER(cuMemsetD8Async)(chunk.at, 0, kBytes, chunk.other) == CUDA_SUCCESS);
  REQUIRE(DRIVER(cuStreamSynchronize)(chunk.other) == CUDA_SUCCESS);
  CHECK(violations() == before);

  chunk.launch(chunk.other);
  REQUIRE(DRIVER(cuMemsetD8Async)(chunk.at, 0, kBytes, chunk.stream) == CUDA_SUCCESS);
  CHECK(violations() == before + 1);
  REQUIRE(DRIVER(cuEventDestroy)(event) == CUDA_SUCCESS);
}

TEST_CASE("an event that was queried as done ends the work before it, and no other stream's") {
  Chunk chunk;
  CUevent event = nullptr;
  REQUIRE(DRIVER(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
  chunk.launch(chunk.stream);
  REQUIRE(DRIVER(cuEventRecord)(event, chunk.stream) == CUDA_SUCCESS);
  CUresult result = CUDA_ERROR_NOT_READY;
  for (int n = 0; n < 1000 && result == CUDA_ERROR_NOT_READY; ++n)
    result = DRIVER(cuEventQuery)(event);
  CHECK(result == CUDA_SUCCESS);
  const auto before = violations();
  CHECK(chunk.unmap() == CUDA_SUCCESS);
  CHECK(violations() == before);
  REQUIRE(DRIVER(cuEventDestroy)(event) == CUDA_SUCCESS);
}

TEST_CASE("a tick of the control page ends all work that was given before it") {
  Chunk chunk;
  chunk.launch(chunk.stream);
  control().tick();
  const auto before = violations();
  CHECK(chunk.unmap() == CUDA_SUCCESS);
  CHECK(violations() == before);
}

TEST_CASE("with lazy streams off, work runs at launch") {
  Chunk chunk;
  control().set_lazy_streams(false);
  REQUIRE(DRIVER(cuMemsetD8Async)(chunk.at, 1, 64, chunk.stream) == CUDA_SUCCESS);
  CHECK(DRIVER(cuStreamQuery)(chunk.stream) == CUDA_SUCCESS);
  control().set_lazy_streams(true);
}
