// One physical allocation of the device: one driver handle, the unit of lease, of mapping and of reclaim
// (rule 12).
//
// Owns: one reference to the handle. Promises: needs no context; the reference goes when the object does.
// Never: maps (mapping.hpp), retries for memory that may still come back (its caller has the clock, rule 6),
// assumes anything of a new chunk's contents (rule 7).
// Thread-safety: as a value; the driver locks inside. Take a CaptureGuard on threads that are the user's.
#pragma once

#include <atomic>

#include "gpu/device.hpp"
#include "shm/fd.hpp"

namespace apportion {

class Chunk {
 public:
  Chunk() = default;  // empty
  Chunk(Chunk&& other) noexcept;
  Chunk& operator=(Chunk&& other) noexcept;
  Chunk(const Chunk&) = delete;
  Chunk& operator=(const Chunk&) = delete;
  ~Chunk();

  // Takes over `fd`'s chunk of `size` bytes: imports it (the fd is not consumed, rule 22; close it after),
  // then verifies that it is pinned memory of this device (rule 26) before anything trusts it. The size is
  // what the broker said; a mapping of more than there is fails (rule 12). Errors: invalid (something else's
  // fd), driver.
  static Result<Chunk> import(const Device& device, const Fd& fd, Bytes size);

  // One more reference to the chunk of `size` bytes that is mapped at `address`, any address inside it (rule
  // 25): for mapping it elsewhere after its own reference went. Error driver.
  static Result<Chunk> at(const Device& device, CUdeviceptr address, Bytes size);

  // A new descriptor for this chunk, close-on-exec, for one message; close it after sending (rule 20).
  // Errors: system where the process or the system has no descriptor left (K5), driver.
  [[nodiscard]] Result<Fd> export_fd() const;

  // Drops the reference now; legal while mapped, and then the mapping keeps the memory (rule 8). On an error
  // the reference is still there, and so is the object's ownership of it (F34).
  Status release();

  [[nodiscard]] bool empty() const { return driver_ == nullptr; }
  [[nodiscard]] CUmemGenericAllocationHandle handle() const { return handle_; }
  [[nodiscard]] Bytes size() const { return size_; }

 private:
  friend class ChunkMaker;
  Chunk(const DriverTable& driver, CUmemGenericAllocationHandle handle, Bytes size)
      : driver_(&driver), handle_(handle), size_(size) {}

  const DriverTable* driver_ = nullptr;
  CUmemGenericAllocationHandle handle_ = 0;
  Bytes size_;
};

// Makes chunks that can be exported as descriptors, and where the device says so and the driver agrees also
// as fabric handles and for RDMA: both are fixed at creation (rule 5), so it asks for all, and learns once
// what is refused. Thread-safety: any thread.
class ChunkMaker {
 public:
  explicit ChunkMaker(const Device& device);

  // `size`: a multiple of the device's granularity, not 0. Errors: invalid (size), out_of_memory (F32),
  // driver. After an error nothing was taken.
  [[nodiscard]] Result<Chunk> make(Bytes size);

  // What chunks made from now on are asked to be able to.
  [[nodiscard]] bool fabric() const { return fabric_.load(std::memory_order_relaxed); }
  [[nodiscard]] bool rdma() const { return rdma_.load(std::memory_order_relaxed); }

 private:
  const Device* device_;
  std::atomic<bool> fabric_;
  std::atomic<bool> rdma_;
};

}  // namespace apportion
