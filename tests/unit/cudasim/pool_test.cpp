// Stream-ordered memory: cuMemAllocAsync and its pools.
#include "tests/unit/cudasim/simulator.hpp"

using namespace cudasim::testing;

namespace {

constexpr size_t kMiB = 1 << 20;

struct Scene {
  CUmemoryPool pool = nullptr;
  CUstream stream = nullptr, other = nullptr;
  Scene() {
    use_context();
    CUmemPoolProps properties{};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    REQUIRE(DRIVER(cuMemPoolCreate)(&pool, &properties) == CUDA_SUCCESS);
    REQUIRE(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    REQUIRE(DRIVER(cuStreamCreate)(&other, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  }
  ~Scene() {
    (void)DRIVER(cuCtxSynchronize)();
    (void)DRIVER(cuStreamDestroy)(stream);
    (void)DRIVER(cuStreamDestroy)(other);
    (void)DRIVER(cuMemPoolDestroy)(pool);
  }
  CUdeviceptr allocate(size_t bytes, CUstream on) {
    CUdeviceptr address = 0;
    REQUIRE(DRIVER(cuMemAllocFromPoolAsync)(&address, bytes, pool, on) == CUDA_SUCCESS);
    return address;
  }
  cuuint64_t get(CUmemPool_attribute attribute) {
    cuuint64_t value = 0;
    REQUIRE(DRIVER(cuMemPoolGetAttribute)(pool, attribute, &value) == CUDA_SUCCESS);
    return value;
  }
  void keep(cuuint64_t bytes) {
    REQUIRE(DRIVER(cuMemPoolSetAttribute)(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &bytes) == CUDA_SUCCESS);
  }
};

size_t free_bytes() {
  size_t free = 0, total = 0;
  REQUIRE(DRIVER(cuMemGetInfo)(&free, &total) == CUDA_SUCCESS);
  return free;
}

}  // namespace

TEST_CASE("C2: create, allocate from it, free, synchronise, trim: all succeed and usage is back to zero") {
  Scene scene;
  const size_t before = free_bytes();
  const CUdeviceptr address = scene.allocate(8 * kMiB, scene.stream);
  CHECK(before - free_bytes() == 8 * kMiB);
  CHECK(scene.get(CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 8 * kMiB);
  REQUIRE(DRIVER(cuMemsetD8Async)(address, 1, kMiB, scene.stream) == CUDA_SUCCESS);
  REQUIRE(DRIVER(cuMemFreeAsync)(address, scene.stream) == CUDA_SUCCESS);
  REQUIRE(DRIVER(cuStreamSynchronize)(scene.stream) == CUDA_SUCCESS);
  REQUIRE(DRIVER(cuMemPoolTrimTo)(scene.pool, 0) == CUDA_SUCCESS);
  CHECK(scene.get(CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 0);
  CHECK(scene.get(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 0);
  CHECK(scene.get(CU_MEMPOOL_ATTR_USED_MEM_HIGH) == 8 * kMiB);
  CHECK(free_bytes() == before);
}

TEST_CASE(
    "a block freed on a stream is handed out again there at once, elsewhere only when the free has run") {
  Scene scene;
  scene.keep(1 << 30);
  const CUdeviceptr first = scene.allocate(4 * kMiB, scene.stream);
  REQUIRE(DRIVER(cuMemFreeAsync)(first, scene.stream) == CUDA_SUCCESS);
  const CUdeviceptr elsewhere = scene.allocate(4 * kMiB, scene.other);
  CHECK(elsewhere != first);
  const CUdeviceptr again = scene.allocate(4 * kMiB, scene.stream);
  CHECK(again == first);
  REQUIRE(DRIVER(cuStreamSynchronize)(scene.stream) == CUDA_SUCCESS);
  // The free that ran after the block was handed out again must not have freed it a second time.
  CHECK(scene.allocate(4 * kMiB, scene.other) != first);
  REQUIRE(DRIVER(cuMemFreeAsync)(first, scene.stream) == CUDA_SUCCESS);
  REQUIRE(DRIVER(cuStreamSynchronize)(scene.stream) == CUDA_SUCCESS);
  CHECK(scene.allocate(4 * kMiB, scene.other) == first);
}

TEST_CASE("freed blocks stay with the pool up to the release threshold, and count as used of the device") {
  Scene scene;
  scene.keep(1 << 30);
  const size_t before = free_bytes();
  const CUdeviceptr address = scene.allocate(4 * kMiB, scene.stream);
  REQUIRE(DRIVER(cuMemFreeAsync)(address, scene.stream) == CUDA_SUCCESS);
  REQUIRE(DRIVER(cuStreamSynchronize)(scene.stream) == CUDA_SUCCESS);
  CHECK(before - free_bytes() == 4 * kMiB);
  scene.keep(0);
  REQUIRE(DRIVER(cuStreamSynchronize)(scene.stream) == CUDA_SUCCESS);
  CHECK(free_bytes() == before);
}

TEST_CASE("cuMemFree takes memory of a pool; foreign and freed addresses are refused by cuMemFreeAsync") {
  Scene scene;
  const size_t before = free_bytes();
  const CUdeviceptr address = scene.allocate(2 * kMiB, scene.stream);
  REQUIRE(DRIVER(cuMemFree)(address) == CUDA_SUCCESS);
  CHECK(free_bytes() == before);
  CHECK(DRIVER(cuMemFreeAsync)(address, scene.stream) == CUDA_ERROR_INVALID_VALUE);
  CHECK(DRIVER(cuMemFreeAsync)(0x1234, scene.stream) == CUDA_ERROR_INVALID_VALUE);
  CUdeviceptr none = 0;
  CHECK(DRIVER(cuMemAllocFromPoolAsync)(&none, 0, scene.pool, scene.stream) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("when the device is full, what pools cache is given back before out of memory") {
  Scene scene;
  scene.keep(1 << 30);
  const size_t half = free_bytes() / 2 / (2 * kMiB) * (2 * kMiB);
  const CUdeviceptr big = scene.allocate(half, scene.stream);
  REQUIRE(DRIVER(cuMemFreeAsync)(big, scene.stream) == CUDA_SUCCESS);
  const CUdeviceptr more =
      scene.allocate(half + 64 * kMiB, scene.other);  // fits only without the cached block
  CHECK(more != 0);
  CUdeviceptr none = 0;
  CHECK(DRIVER(cuMemAllocFromPoolAsync)(&none, half, scene.pool, scene.other) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(none == 0);
  REQUIRE(DRIVER(cuMemFreeAsync)(more, scene.other) == CUDA_SUCCESS);
}

TEST_CASE("a device has a default pool, and another can take its place") {
  Scene scene;
  CUmemoryPool standard = nullptr, current = nullptr;
  REQUIRE(DRIVER(cuDeviceGetDefaultMemPool)(&standard, 0) == CUDA_SUCCESS);
  REQUIRE(DRIVER(cuDeviceGetMemPool)(&current, 0) == CUDA_SUCCESS);
  CHECK(current == standard);
  REQUIRE(DRIVER(cuDeviceSetMemPool)(0, scene.pool) == CUDA_SUCCESS);
  CUdeviceptr address = 0;
  REQUIRE(DRIVER(cuMemAllocAsync)(&address, 2 * kMiB, scene.stream) == CUDA_SUCCESS);
  CHECK(scene.get(CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 2 * kMiB);
  REQUIRE(DRIVER(cuMemFreeAsync)(address, scene.stream) == CUDA_SUCCESS);
  REQUIRE(DRIVER(cuDeviceSetMemPool)(0, standard) == CUDA_SUCCESS);
  CHECK(DRIVER(cuMemPoolDestroy)(standard) == CUDA_ERROR_INVALID_VALUE);
  CHECK(DRIVER(cuDeviceGetDefaultMemPool)(&standard, 7) == CUDA_ERROR_INVALID_DEVICE);
}
