// gpu/mapping.hpp.
#include "gpu/mapping.hpp"

#include <utility>

namespace apportion {

AddressRange::AddressRange(AddressRange&& other) noexcept
    : driver_(std::exchange(other.driver_, nullptr)),
      base_(std::exchange(other.base_, 0)),
      size_(std::exchange(other.size_, Bytes{})) {}

AddressRange& AddressRange::operator=(AddressRange&& other) noexcept {
  std::swap(driver_, other.driver_);
  std::swap(base_, other.base_);
  std::swap(size_, other.size_);
  return *this;
}

AddressRange::~AddressRange() {
  if (driver_ != nullptr) static_cast<void>(driver_->mem_address_free(base_, size_.value));
}

Result<AddressRange> AddressRange::reserve(const Device& device, Bytes size, Bytes alignment,
                                           CUdeviceptr wish) {
  const DriverTable& driver = device.driver();
  AddressRange range;
  const CUresult r = driver.mem_address_reserve(&range.base_, size.value, alignment.value, wish, 0);
  if (r != CUDA_SUCCESS) return driver_error(driver, r, "cuMemAddressReserve");
  range.driver_ = &driver;
  range.size_ = size;
  return range;
}

Status AddressRange::free() {
  if (driver_ == nullptr) return Done{};
  const CUresult r = driver_->mem_address_free(base_, size_.value);
  if (r != CUDA_SUCCESS) return driver_error(*driver_, r, "cuMemAddressFree");
  driver_ = nullptr;
  base_ = 0;
  size_ = Bytes{};
  return Done{};
}

Status map_run(const Device& device, CUdeviceptr at, std::span<const Chunk* const> chunks, bool* stuck) {
  const DriverTable& driver = device.driver();
  Bytes mapped;
  const auto undo = [&](CUresult failed, const char* call) {
    Error error = driver_error(driver, failed, call);
    if (mapped.value == 0) return error;
    const CUresult r = driver.mem_unmap(at, mapped.value);
    if (r != CUDA_SUCCESS) {
      if (stuck != nullptr) *stuck = true;
      try {
        error.message +=
            "; " + to_text(mapped) + " stay mapped: " + driver_error(driver, r, "cuMemUnmap").message;
      } catch (const std::bad_alloc&) {  // F31: the caller must hear what is stuck
      }
    }
    return error;
  };
  for (const Chunk* chunk : chunks) {
    const CUresult r = driver.mem_map(at + mapped.value, chunk->size().value, 0, chunk->handle(), 0);
    if (r != CUDA_SUCCESS) return undo(r, "cuMemMap");
    mapped += chunk->size();
  }
  CUmemAccessDesc access{};
  access.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device.ordinal()};
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  const CUresult r = driver.mem_set_access(at, mapped.value, &access, 1);
  if (r != CUDA_SUCCESS) return undo(r, "cuMemSetAccess");
  return Done{};
}

Status unmap_run(const DriverTable& driver, CUdeviceptr at, Bytes size) {
  return driver_status(driver, driver.mem_unmap(at, size.value), "cuMemUnmap");
}

Mapping::Mapping(Mapping&& other) noexcept
    : driver_(std::exchange(other.driver_, nullptr)), range_(std::move(other.range_)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(driver_, other.driver_);
  std::swap(range_, other.range_);
  return *this;
}

Mapping::~Mapping() {
  static_cast<void>(unmap());
}

Result<Mapping> Mapping::map(const Device& device, std::span<const Chunk* const> chunks) {
  Bytes size;
  for (const Chunk* chunk : chunks)
    size += chunk->size();
  auto range = AddressRange::reserve(device, size);
  if (!range) return range.error();
  Mapping mapping;
  mapping.range_ = *std::move(range);
  if (Status mapped = map_run(device, mapping.base(), chunks); !mapped) return mapped.error();
  mapping.driver_ = &device.driver();
  return mapping;
}

Result<Mapping> Mapping::map(const Device& device, const Chunk& chunk) {
  const Chunk* const one = &chunk;
  return map(device, std::span(&one, 1));
}

Status Mapping::unmap() {
  if (driver_ != nullptr) {
    if (Status unmapped = unmap_run(*driver_, base(), size()); !unmapped) return unmapped;
    driver_ = nullptr;
  }
  return range_.free();
}

}  // namespace apportion
