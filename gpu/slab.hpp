// A slab: one cuMemAlloc allocation that other processes of the same user open by a 64-byte handle (cudaIpc).
// The only code that makes, opens and closes such memory.
//
// Owns: Slab the allocation, in the one process that made it; SlabImport one opening of it, in another.
// Promises: a slab is a whole multiple of 2 MiB, so that nothing of a stranger's shares its block (rule 32);
// it goes when its object does. Never: frees a slab that is still open somewhere by itself: whoever owns a
// Slab knows that all imports are closed (rule 35), or that their processes are gone; takes a new slab's
// contents for zeros (rule 29).
// Thread-safety: none for one object. All calls need the context current in which the object was made, also
// its end.
#pragma once

#include "gpu/device.hpp"
#include "shm/bytes.hpp"
#include "shm/ipc_handle.hpp"
#include "shm/result.hpp"

namespace apportion {

// What sizes of slabs are multiples of: smaller ones share a block of the driver's with strangers (rule 32).
inline constexpr Bytes kSlabGranularity = 2_MiB;

class Slab {
 public:
  Slab() = default;  // empty
  Slab(Slab&& other) noexcept;
  Slab& operator=(Slab&& other) noexcept;
  Slab(const Slab&) = delete;
  Slab& operator=(const Slab&) = delete;
  ~Slab();

  // Errors: invalid (not a multiple of kSlabGranularity, or 0), out_of_memory, driver; nothing was taken.
  static Result<Slab> make(const Device& device, Bytes size);

  // For another process; opening it in this one is refused by the driver (rule 33).
  [[nodiscard]] const IpcHandle& handle() const { return handle_; }
  [[nodiscard]] Bytes size() const { return size_; }
  [[nodiscard]] CUdeviceptr address() const { return address_; }
  [[nodiscard]] bool empty() const { return driver_ == nullptr; }

  // Zeros in every byte when it answers Done (rule 31: synchronised). Error driver: contents unknown.
  [[nodiscard]] Status overwrite();

  // Frees it now. On an error it is still there and still owned (F34).
  Status free();

 private:
  const DriverTable* driver_ = nullptr;
  CUdeviceptr address_ = 0;
  Bytes size_;
  IpcHandle handle_{};
};

class SlabImport {
 public:
  SlabImport() = default;  // empty
  SlabImport(SlabImport&& other) noexcept;
  SlabImport& operator=(SlabImport&& other) noexcept;
  SlabImport(const SlabImport&) = delete;
  SlabImport& operator=(const SlabImport&) = delete;
  ~SlabImport();

  // Opens a slab of `size` bytes of another process of this user, alive and in this PID namespace (rule 33).
  // The address is the driver's choice; opened again in one context it is the same one, and each opening
  // needs its own close. Errors: invalid (something of another size is there), driver.
  static Result<SlabImport> open(const Device& device, const IpcHandle& handle, Bytes size);

  // No work of the GPU's may still use it (rule 18). On an error it is still open and still owned.
  Status close();
  // It stays open until the process or the context ends: where nobody can say that the GPU is done with it.
  void leave_open() { driver_ = nullptr; }

  [[nodiscard]] CUdeviceptr address() const { return address_; }
  [[nodiscard]] Bytes size() const { return size_; }
  [[nodiscard]] bool empty() const { return driver_ == nullptr; }

 private:
  const DriverTable* driver_ = nullptr;
  CUdeviceptr address_ = 0;
  Bytes size_;
};

}  // namespace apportion
