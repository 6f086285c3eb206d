// Driver objects of the test program itself, for rules that one process can test.
//
// Promises: what a test made is given back when it ends, also when it fails (results of giving back are not
// checked: a broken rule must fail its own test only). Never: used by the helper process.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

#include "answer.hpp"
#include "driver.hpp"
#include "scene.hpp"

namespace apportion::conformance {

// Initialises CUDA in this process, once, with the primary context of device 0 current on the calling thread;
// on the simulator on a fresh device of this process. Fails the test where that is refused.
void use_device();

// Pinned memory on device 0 that can be exported as `types`.
CUmemAllocationProp device_memory(CUmemAllocationHandleType types = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
CUmemAccessDesc access_of(CUmemAccess_flags flags);

// An allocation with one reference. Fails the test where it cannot be made.
class Handle {
 public:
  explicit Handle(std::size_t bytes = kChunk, const CUmemAllocationProp& prop = device_memory());
  explicit Handle(CUmemGenericAllocationHandle adopted) : handle_(adopted) {}
  ~Handle() { release(); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  [[nodiscard]] CUmemGenericAllocationHandle get() const { return handle_; }
  Answer release();

 private:
  CUmemGenericAllocationHandle handle_ = 0;
};

// A reserved range and the mappings in it.
class Range {
 public:
  explicit Range(std::size_t bytes = kChunk);
  ~Range();
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;

  [[nodiscard]] CUdeviceptr at(std::size_t offset = 0) const { return base_ + offset; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

  // The driver's answers, for ranges inside this one.
  Answer map(std::size_t offset, std::size_t bytes, CUmemGenericAllocationHandle handle);
  Answer unmap(std::size_t offset, std::size_t bytes);
  Answer set_access(std::size_t offset, std::size_t bytes,
                    CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE);

  // Maps `handle` at `offset` with access; fails the test where that is refused.
  void mapped(std::size_t offset, const Handle& handle, std::size_t bytes = kChunk);

 private:
  CUdeviceptr base_ = 0;
  std::size_t bytes_ = 0;
};

// 8 bytes of device memory, through copies. Fail the test where the copy is refused.
void write_word(CUdeviceptr address, std::uint64_t value);
std::uint64_t read_word(CUdeviceptr address);

// cuMemGetAccess for device 0: what the mapping at `address` allows.
unsigned long long access_at(CUdeviceptr address);

}  // namespace apportion::conformance
