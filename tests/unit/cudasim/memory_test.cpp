// Linear, managed and host memory and contexts, as one process sees them and as the device counts them.
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/catch.hpp"
#include "tests/unit/cudasim/child.hpp"

using namespace cudasim;
using namespace cudasim::testing;

namespace {

constexpr u64 kDevice = 64u << 20, kContext = 16u << 20;

FolderOptions small_device() {
  FolderOptions options;
  options.device_bytes = {kDevice};
  options.context_bytes = kContext;
  return options;
}

u64 free_bytes(Driver& driver) {
  size_t bytes = 0;
  MUST(SYM(driver, cuMemGetInfo)(&bytes, nullptr) == CUDA_SUCCESS);
  return bytes;
}

CUdeviceptr allocate(Driver& driver, u64 bytes) {
  CUdeviceptr address = 0;
  MUST(SYM(driver, cuMemAlloc)(&address, bytes) == CUDA_SUCCESS);
  return address;
}

// Runs `body` with a primary context in a process of its own.
int run(const TemporaryFolder& folder, std::function<void(Driver&)> body) {
  Child child(folder.path(), [&](Driver& driver, Link&) {
    use_primary_context(driver);
    body(driver);
  });
  return child.wait();
}

}  // namespace

TEST_CASE("small allocations share a 2 MiB block, and the block goes with the last of them") {
  TemporaryFolder folder(small_device());
  CHECK(run(folder, [](Driver& driver) {
          const u64 before = free_bytes(driver);
          std::vector<CUdeviceptr> addresses;
          for (u64 i = 0; i < 100; i++)
            addresses.push_back(allocate(driver, 1000));
          MUST(free_bytes(driver) == before - kGranularity);
          for (u64 i = 0; i < 100; i++)
            put_word(driver, addresses[i] + 992, i);
          for (u64 i = 0; i < 100; i++)
            MUST(get_word(driver, addresses[i] + 992) == i);
          for (CUdeviceptr address : addresses)
            MUST(address % 512 == 0);
          for (CUdeviceptr address : addresses)
            MUST(SYM(driver, cuMemFree)(address) == CUDA_SUCCESS);
          MUST(free_bytes(driver) == before);
        }) == 0);
}

TEST_CASE("a context costs its bytes; a full device has no room for one; its end frees its memory") {
  TemporaryFolder folder(small_device());
  CHECK(run(folder, [](Driver& driver) {
          MUST(free_bytes(driver) == kDevice - kContext);
          CUcontext second = nullptr, third = nullptr, fourth = nullptr;
          MUST(SYM(driver, cuCtxCreate)(&second, nullptr, 0, 0) == CUDA_SUCCESS);
          allocate(driver, 24u << 20);
          MUST(free_bytes(driver) == kDevice - 2 * kContext - (24u << 20));
          MUST(SYM(driver, cuCtxCreate)(&third, nullptr, 0, 0) == CUDA_ERROR_OUT_OF_MEMORY);
          MUST(SYM(driver, cuCtxDestroy)(second) == CUDA_SUCCESS);
          MUST(free_bytes(driver) == kDevice - kContext);  // the primary context is current again
          MUST(SYM(driver, cuCtxCreate)(&fourth, nullptr, 0, 0) == CUDA_SUCCESS);
          MUST(SYM(driver, cuCtxSetCurrent)(second) == CUDA_ERROR_CONTEXT_IS_DESTROYED);
        }) == 0);
  CHECK(folder->used_bytes(0) == 0);
}

TEST_CASE("a primary context lives while it is retained, and is made again after a reset") {
  TemporaryFolder folder(small_device());
  CHECK(run(folder, [](Driver& driver) {
          CUcontext again = nullptr;
          unsigned flags = 0;
          int active = 0;
          auto state = SYM(driver, cuDevicePrimaryCtxGetState);
          MUST(SYM(driver, cuDevicePrimaryCtxRetain)(&again, 0) == CUDA_SUCCESS);
          MUST(SYM(driver, cuDevicePrimaryCtxRelease)(0) == CUDA_SUCCESS);
          MUST(state(0, &flags, &active) == CUDA_SUCCESS && active == 1);
          allocate(driver, 4u << 20);
          MUST(SYM(driver, cuDevicePrimaryCtxReset)(0) == CUDA_SUCCESS);
          MUST(free_bytes(driver) == kDevice - kContext);
          MUST(SYM(driver, cuDevicePrimaryCtxRelease)(0) == CUDA_SUCCESS);
          MUST(state(0, &flags, &active) == CUDA_SUCCESS && active == 0);
          MUST(SYM(driver, cuCtxSynchronize)() == CUDA_ERROR_CONTEXT_IS_DESTROYED);
          MUST(SYM(driver, cuDevicePrimaryCtxRelease)(0) == CUDA_ERROR_INVALID_CONTEXT);
        }) == 0);
}

TEST_CASE("managed memory is readable by the host and is had even when the device is full") {
  TemporaryFolder folder(small_device());
  CHECK(run(folder, [](Driver& driver) {
          CUdeviceptr address = 0;
          unsigned managed = 0;
          allocate(driver, free_bytes(driver));
          MUST(SYM(driver, cuMemAllocManaged)(&address, 8u << 20, CU_MEM_ATTACH_GLOBAL) == CUDA_SUCCESS);
          *reinterpret_cast<volatile u64*>(address) = 77;
          MUST(get_word(driver, address) == 77);
          MUST(SYM(driver, cuPointerGetAttribute)(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address) ==
               CUDA_SUCCESS);
          MUST(managed == 1 && free_bytes(driver) == 0);
          MUST(SYM(driver, cuMemFree)(address) == CUDA_SUCCESS);
        }) == 0);
}

TEST_CASE("pinned and registered host memory costs no device memory and is known as host memory") {
  TemporaryFolder folder(small_device());
  CHECK(run(folder, [](Driver& driver) {
          const u64 before = free_bytes(driver);
          void* pinned = nullptr;
          unsigned type = 0;
          std::vector<char> own(8192);
          auto attribute = SYM(driver, cuPointerGetAttribute);
          auto address_of = [](void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); };
          MUST(SYM(driver, cuMemHostAlloc)(&pinned, 1u << 20, 0) == CUDA_SUCCESS);
          MUST(attribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address_of(pinned) + 100) == CUDA_SUCCESS);
          MUST(type == CU_MEMORYTYPE_HOST && free_bytes(driver) == before);
          MUST(attribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address_of(own.data())) ==
               CUDA_ERROR_INVALID_VALUE);
          MUST(SYM(driver, cuMemHostRegister)(own.data(), own.size(), 0) == CUDA_SUCCESS);
          MUST(SYM(driver, cuMemHostRegister)(own.data() + 1, 1, 0) ==
               CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
          MUST(attribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address_of(own.data())) == CUDA_SUCCESS);
          MUST(SYM(driver, cuMemFreeHost)(own.data()) == CUDA_ERROR_INVALID_VALUE);
          MUST(SYM(driver, cuMemHostUnregister)(own.data()) == CUDA_SUCCESS);
          MUST(SYM(driver, cuMemHostUnregister)(own.data()) == CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
          MUST(SYM(driver, cuMemFreeHost)(pinned) == CUDA_SUCCESS);
          MUST(SYM(driver, cuMemFreeHost)(pinned) == CUDA_ERROR_INVALID_VALUE);
        }) == 0);
}

TEST_CASE("a memset to zero touches no page of a fresh chunk and gives back those of a used one") {
  TemporaryFolder folder(small_device());
  Child child(folder.path(), [](Driver& driver, Link& link) {
    use_primary_context(driver);
    const CUdeviceptr address = map_chunk(driver, create_chunk(driver, 32u << 20), 32u << 20);
    auto zero = [&](CUdeviceptr from, u64 bytes) {
      MUST(SYM(driver, cuMemsetD8)(from, 0, bytes) == CUDA_SUCCESS);
      MUST(SYM(driver, cuCtxSynchronize)() == CUDA_SUCCESS);
    };
    zero(address, 32u << 20);
    link.send(1);
    link.receive();
    for (u64 offset = 0; offset < 32u << 20; offset += 1u << 20)
      put_word(driver, address + offset, 1);
    link.send(1);
    link.receive();
    zero(address + 8, (32u << 20) - 8);  // not from a page's start: the first word stays
    link.send(1);
    link.receive();
    MUST(get_word(driver, address) == 1 && get_word(driver, address + (1u << 20)) == 0);
  });
  auto blocks = [&] {
    struct stat status {};
    REQUIRE(child.link().receive() == 1);
    REQUIRE(::stat(folder->folder().allocation_path(0).c_str(), &status) == 0);
    child.link().send(1);
    return status.st_blocks;
  };
  CHECK(blocks() == 0);
  CHECK(blocks() == 32 * 8);
  CHECK(blocks() == 8);
  CHECK(child.wait() == 0);
}

TEST_CASE("a process that forks before cuInit leaves its child free to use the device") {
  TemporaryFolder folder(small_device());
  Child parent(folder.path(), [](Driver& driver, Link& link) {
    int version = 0;
    MUST(SYM(driver, cuDriverGetVersion)(&version) == CUDA_SUCCESS);  // attaches, but is not cuInit
    if (::fork() == 0) {
      create_chunk(driver, kGranularity);
      link.send(static_cast<u64>(::getpid()));
      link.receive();
      std::exit(0);
    }
    link.receive();
  });
  const u64 child = parent.link().receive();
  REQUIRE(child != ~u64{0});
  const CensusReport census = folder->census();
  REQUIRE(census.allocations.size() == 1);
  CHECK(census.allocations[0].creator_pid == static_cast<int>(child));
  CHECK(census.processes.size() == 2);
}
