// gpu/slab.hpp.
#include "gpu/slab.hpp"

#include <bit>
#include <utility>

namespace apportion {

static_assert(sizeof(CUipcMemHandle) == kIpcHandleBytes);

Slab::Slab(Slab&& other) noexcept
    : driver_(std::exchange(other.driver_, nullptr)),
      address_(std::exchange(other.address_, 0)),
      size_(std::exchange(other.size_, Bytes{})),
      handle_(other.handle_) {}

Slab& Slab::operator=(Slab&& other) noexcept {
  std::swap(driver_, other.driver_);
  std::swap(address_, other.address_);
  std::swap(size_, other.size_);
  std::swap(handle_, other.handle_);
  return *this;
}

Slab::~Slab() {
  // Whoever needs to know that the driver refused calls free() first.
  if (driver_ != nullptr) static_cast<void>(driver_->mem_free(address_));
}

Result<Slab> Slab::make(const Device& device, Bytes size) {
  if (size.value == 0 || round_down(size, kSlabGranularity) != size)
    return Error{Errc::invalid, "a slab of " + std::to_string(size.value) + " bytes is not a multiple of " +
                                    to_text(kSlabGranularity)};
  const DriverTable& driver = device.driver();
  Slab slab;
  CUresult r = driver.mem_alloc(&slab.address_, size.value);
  if (r != CUDA_SUCCESS) return driver_error(driver, r, "cuMemAlloc");
  slab.driver_ = &driver;  // from here on it is freed on every way out
  slab.size_ = size;
  CUipcMemHandle handle{};
  r = driver.ipc_get_mem_handle(&handle, slab.address_);
  if (r != CUDA_SUCCESS) return driver_error(driver, r, "cuIpcGetMemHandle");
  slab.handle_ = std::bit_cast<IpcHandle>(handle);
  return slab;
}

Status Slab::overwrite() {
  if (driver_ == nullptr) return Done{};
  const CUresult given = driver_->memset_d8_async(address_, 0, size_.value, nullptr);
  const CUresult done = driver_->stream_synchronize(nullptr);
  if (given != CUDA_SUCCESS) return driver_error(*driver_, given, "cuMemsetD8Async");
  if (done != CUDA_SUCCESS) return driver_error(*driver_, done, "cuStreamSynchronize");
  return Done{};
}

Status Slab::free() {
  if (driver_ == nullptr) return Done{};
  const CUresult r = driver_->mem_free(address_);
  if (r != CUDA_SUCCESS) return driver_error(*driver_, r, "cuMemFree");
  driver_ = nullptr;
  address_ = 0;
  size_ = Bytes{};
  return Done{};
}

SlabImport::SlabImport(SlabImport&& other) noexcept
    : driver_(std::exchange(other.driver_, nullptr)),
      address_(std::exchange(other.address_, 0)),
      size_(std::exchange(other.size_, Bytes{})) {}

SlabImport& SlabImport::operator=(SlabImport&& other) noexcept {
  std::swap(driver_, other.driver_);
  std::swap(address_, other.address_);
  std::swap(size_, other.size_);
  return *this;
}

SlabImport::~SlabImport() {
  // Whoever needs to know that the driver refused calls close() first.
  if (driver_ != nullptr) static_cast<void>(driver_->ipc_close_mem_handle(address_));
}

Result<SlabImport> SlabImport::open(const Device& device, const IpcHandle& handle, Bytes size) {
  const DriverTable& driver = device.driver();
  SlabImport import;
  CUresult r = driver.ipc_open_mem_handle(&import.address_, std::bit_cast<CUipcMemHandle>(handle),
                                          CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  if (r != CUDA_SUCCESS) return driver_error(driver, r, "cuIpcOpenMemHandle");
  import.driver_ = &driver;  // from here on it is closed on every way out
  import.size_ = size;
  // What was said of it is checked before anybody writes to it.
  CUdeviceptr base = 0;
  std::size_t bytes = 0;
  r = driver.mem_get_address_range(&base, &bytes, import.address_);
  if (r != CUDA_SUCCESS) return driver_error(driver, r, "cuMemGetAddressRange");
  if (base != import.address_ || bytes < size.value)
    return Error{Errc::invalid, "the slab's handle opens " + std::to_string(bytes) +
                                    " bytes, and the broker said " + std::to_string(size.value)};
  return import;
}

Status SlabImport::close() {
  if (driver_ == nullptr) return Done{};
  const CUresult r = driver_->ipc_close_mem_handle(address_);
  if (r != CUDA_SUCCESS) return driver_error(*driver_, r, "cuIpcCloseMemHandle");
  driver_ = nullptr;
  address_ = 0;
  size_ = Bytes{};
  return Done{};
}

}  // namespace apportion
