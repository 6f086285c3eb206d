// Driver objects of the test program itself: tests/conformance/local.hpp.
#include "local.hpp"

#include <cstdlib>

#include "tests/support/catch.hpp"

namespace apportion::conformance {
namespace {

// The device of this process: its folder goes when the process ends.
void choose_device() {
  static const cudasim::ScratchFolder folder;
  ::setenv("CUDASIM_DIR", folder.path().c_str(), 1);
  ::setenv("CUDASIM_DEVICES", "8GiB", 1);
}

CUcontext make_context() {
  if (on_simulator()) choose_device();
  CUcontext context = nullptr;
  REQUIRE(Answer{driver().init(0)} == kOk);
  REQUIRE(Answer{driver().device_primary_ctx_retain(&context, 0)} == kOk);
  return context;
}

}  // namespace

void use_device() {
  static const CUcontext context = make_context();
  REQUIRE(Answer{driver().ctx_set_current(context)} == kOk);
}

CUmemAllocationProp device_memory(CUmemAllocationHandleType types) {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  prop.requestedHandleTypes = types;
  return prop;
}

CUmemAccessDesc access_of(CUmemAccess_flags flags) {
  CUmemAccessDesc access{};
  access.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  access.flags = flags;
  return access;
}

Handle::Handle(std::size_t bytes, const CUmemAllocationProp& prop) {
  REQUIRE(Answer{driver().mem_create(&handle_, bytes, &prop, 0)} == kOk);
}

Answer Handle::release() {
  if (handle_ == 0) return kOk;
  return Answer{driver().mem_release(std::exchange(handle_, 0))};
}

Range::Range(std::size_t bytes) : bytes_(bytes) {
  REQUIRE(Answer{driver().mem_address_reserve(&base_, bytes, 0, 0, 0)} == kOk);
}

Range::~Range() {
  // Whatever is still mapped, chunk by chunk or as a whole: unmapping what is not mapped is refused, and that
  // is fine here.
  driver().ctx_synchronize();
  if (driver().mem_address_free(base_, bytes_) == CUDA_SUCCESS) return;
  for (std::size_t offset = 0; offset < bytes_; offset += kChunk)
    driver().mem_unmap(base_ + offset, kChunk);
  driver().mem_unmap(base_, bytes_);
  driver().mem_address_free(base_, bytes_);
}

Answer Range::map(std::size_t offset, std::size_t bytes, CUmemGenericAllocationHandle handle) {
  return Answer{driver().mem_map(base_ + offset, bytes, 0, handle, 0)};
}

Answer Range::unmap(std::size_t offset, std::size_t bytes) {
  return Answer{driver().mem_unmap(base_ + offset, bytes)};
}

Answer Range::set_access(std::size_t offset, std::size_t bytes, CUmemAccess_flags flags) {
  const CUmemAccessDesc access = access_of(flags);
  return Answer{driver().mem_set_access(base_ + offset, bytes, &access, 1)};
}

void Range::mapped(std::size_t offset, const Handle& handle, std::size_t bytes) {
  REQUIRE(map(offset, bytes, handle.get()) == kOk);
  REQUIRE(set_access(offset, bytes) == kOk);
}

void write_word(CUdeviceptr address, std::uint64_t value) {
  REQUIRE(Answer{driver().memcpy_htod(address, &value, sizeof value)} == kOk);
}

std::uint64_t read_word(CUdeviceptr address) {
  std::uint64_t value = 0;
  REQUIRE(Answer{driver().memcpy_dtoh(&value, address, sizeof value)} == kOk);
  return value;
}

unsigned long long access_at(CUdeviceptr address) {
  const CUmemLocation location{CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  unsigned long long flags = 0;
  REQUIRE(Answer{driver().mem_get_access(&flags, &location, address)} == kOk);
  return flags;
}

}  // namespace apportion::conformance
