// gpu/chunk.hpp.
#include "gpu/chunk.hpp"

#include <cerrno>
#include <cstdint>
#include <utility>

namespace apportion {
namespace {

CUmemAllocationProp chunk_properties(CUdevice device, bool fabric, bool rdma) {
  unsigned types = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  if (fabric) types |= CU_MEM_HANDLE_TYPE_FABRIC;
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
  properties.requestedHandleTypes = static_cast<CUmemAllocationHandleType>(types);
  properties.allocFlags.gpuDirectRDMACapable = rdma ? 1 : 0;
  return properties;
}

// Whether the driver refused what was asked for, rather than failed or had no room: only that is worth asking
// for less.
bool refused_as_asked(CUresult r) {
  return r == CUDA_ERROR_NOT_PERMITTED || r == CUDA_ERROR_NOT_SUPPORTED || r == CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

Chunk::Chunk(Chunk&& other) noexcept
    : driver_(std::exchange(other.driver_, nullptr)),
      handle_(std::exchange(other.handle_, 0)),
      size_(std::exchange(other.size_, Bytes{})) {}

Chunk& Chunk::operator=(Chunk&& other) noexcept {
  std::swap(driver_, other.driver_);
  std::swap(handle_, other.handle_);
  std::swap(size_, other.size_);
  return *this;
}

Chunk::~Chunk() {
  // Whoever needs to know that the driver refused calls release() first.
  if (driver_ != nullptr) static_cast<void>(driver_->mem_release(handle_));
}

Result<Chunk> Chunk::import(const Device& device, const Fd& fd, Bytes size) {
  const DriverTable& driver = device.driver();
  CUmemGenericAllocationHandle handle = 0;
  // The descriptor itself goes in place of the pointer (rule 22).
  void* shareable = reinterpret_cast<void*>(static_cast<std::uintptr_t>(fd.get()));
  CUresult r =
      driver.mem_import_from_shareable_handle(&handle, shareable, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  if (r != CUDA_SUCCESS) return driver_error(driver, r, "cuMemImportFromShareableHandle");
  Chunk chunk(driver, handle, size);  // from here on the reference is dropped on every way out
  CUmemAllocationProp properties{};
  r = driver.mem_get_allocation_properties_from_handle(&properties, handle);
  if (r != CUDA_SUCCESS) return driver_error(driver, r, "cuMemGetAllocationPropertiesFromHandle");
  if (properties.type != CU_MEM_ALLOCATION_TYPE_PINNED ||
      properties.location.type != CU_MEM_LOCATION_TYPE_DEVICE)
    return Error{Errc::invalid, "the received descriptor is not pinned memory of a device"};
  if (properties.location.id != device.ordinal())
    return Error{Errc::invalid, "the received descriptor is memory of device " +
                                    std::to_string(properties.location.id) + ", not of device " +
                                    std::to_string(device.ordinal())};
  return chunk;
}

Result<Chunk> Chunk::at(const Device& device, CUdeviceptr address, Bytes size) {
  const DriverTable& driver = device.driver();
  CUmemGenericAllocationHandle handle = 0;
  void* inside = reinterpret_cast<void*>(static_cast<std::uintptr_t>(address));
  const CUresult r = driver.mem_retain_allocation_handle(&handle, inside);
  if (r != CUDA_SUCCESS) return driver_error(driver, r, "cuMemRetainAllocationHandle");
  return Chunk(driver, handle, size);
}

Result<Fd> Chunk::export_fd() const {
  int fd = -1;
  errno = 0;
  const CUresult r =
      driver_->mem_export_to_shareable_handle(&fd, handle_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  if (r == CUDA_SUCCESS) return Fd(fd);
  const int saved = errno;
  // K5: an exhausted descriptor table is not a device out of memory.
  if (saved == EMFILE || saved == ENFILE) return system_error("cannot export a chunk", saved);
  return driver_error(*driver_, r, "cuMemExportToShareableHandle");
}

Status Chunk::release() {
  if (driver_ == nullptr) return Done{};
  const CUresult r = driver_->mem_release(handle_);
  if (r != CUDA_SUCCESS) return driver_error(*driver_, r, "cuMemRelease");
  driver_ = nullptr;
  handle_ = 0;
  size_ = Bytes{};
  return Done{};
}

ChunkMaker::ChunkMaker(const Device& device)
    : device_(&device), fabric_(device.facts().fabric), rdma_(device.facts().rdma) {}

Result<Chunk> ChunkMaker::make(Bytes size) {
  const Bytes granularity = device_->facts().granularity;
  if (size.value == 0 || round_down(size, granularity) != size)
    return Error{Errc::invalid, "a chunk of " + std::to_string(size.value) + " bytes is not a multiple of " +
                                    to_text(granularity)};
  const DriverTable& driver = device_->driver();
  CUmemGenericAllocationHandle handle = 0;
  const auto create = [&](bool fabric, bool rdma) {
    const CUmemAllocationProp properties = chunk_properties(device_->ordinal(), fabric, rdma);
    return driver.mem_create(&handle, size.value, &properties, 0);
  };
  bool fabric = this->fabric();
  bool rdma = this->rdma();
  CUresult r = create(fabric, rdma);
  // The attributes say yes and the call says no (rules 5 and 43): fabric handles need a permission of their
  // own.
  if (refused_as_asked(r) && fabric) r = create(fabric = false, rdma);
  if (refused_as_asked(r) && rdma) r = create(fabric, rdma = false);
  if (r != CUDA_SUCCESS) return driver_error(driver, r, "cuMemCreate");
  fabric_.store(fabric, std::memory_order_relaxed);
  rdma_.store(rdma, std::memory_order_relaxed);
  return Chunk(driver, handle, size);
}

}  // namespace apportion
