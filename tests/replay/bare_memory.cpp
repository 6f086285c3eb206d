// tests/replay/bare_memory.hpp.
#include "tests/replay/bare_memory.hpp"

#include <utility>

namespace apportion::replay {

BareMemory::~BareMemory() {
  mappings_.clear();
  for (const auto& [address, size] : allocations_)
    static_cast<void>(device_.driver().mem_free(address));
}

Status BareMemory::start() {
  auto context = PrimaryContext::retain(device_);
  if (!context) return context.error();
  context_ = *std::move(context);
  return Done{};
}

Result<Told> BareMemory::told() {
  std::size_t free = 0;
  std::size_t total = 0;
  const CUresult r = device_.driver().mem_get_info(&free, &total);
  if (r != CUDA_SUCCESS) return driver_error(device_.driver(), r, "cuMemGetInfo");
  return Told{.free = {free}, .total = {total}};
}

Result<Block> BareMemory::allocate(Bytes size) {
  if (backing_ == Backing::mem_alloc) {
    CUdeviceptr address = 0;
    const CUresult r = device_.driver().mem_alloc(&address, size.value);
    if (r != CUDA_SUCCESS) return driver_error(device_.driver(), r, "cuMemAlloc");
    allocations_.emplace(address, size);
    return Block{address, size};
  }
  auto chunk = maker_.make(round_up(size, device_.facts().granularity));
  if (!chunk) return chunk.error();
  auto mapping = Mapping::map(device_, *chunk);
  if (!mapping) return mapping.error();
  const CUdeviceptr address = mapping->base();
  mappings_.emplace(address, *std::move(mapping));
  return Block{address, size};
}

Status BareMemory::free(const Block& block) {
  if (backing_ == Backing::mem_alloc) {
    APPORTION_CHECK(allocations_.erase(block.address) == 1);
    return driver_status(device_.driver(), device_.driver().mem_free(block.address), "cuMemFree");
  }
  const auto found = mappings_.find(block.address);
  APPORTION_CHECK(found != mappings_.end());
  Mapping mapping = std::move(found->second);
  mappings_.erase(found);
  return mapping.unmap();
}

Status BareMemory::write(std::uint64_t address, std::uint64_t value) {
  return driver_status(device_.driver(), device_.driver().memcpy_htod(address, &value, sizeof value),
                       "cuMemcpyHtoD");
}

Result<std::uint64_t> BareMemory::read(std::uint64_t address) {
  std::uint64_t value = 0;
  const CUresult r = device_.driver().memcpy_dtoh(&value, address, sizeof value);
  if (r != CUDA_SUCCESS) return driver_error(device_.driver(), r, "cuMemcpyDtoH");
  return value;
}

}  // namespace apportion::replay
