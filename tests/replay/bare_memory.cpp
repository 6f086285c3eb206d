// tests/replay/bare_memory.hpp.
#include "tests/replay/bare_memory.hpp"

#include <utility>

#include "gpu/stream.hpp"
#include "tests/replay/bare_range.hpp"

namespace apportion::replay {

BareMemory::~BareMemory() {
  while (!mapped_.empty())
    static_cast<void>(free_mapped({mapped_.begin()->first, {}}));
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
  return allocate_mapped(size);
}

Result<Block> BareMemory::allocate_mapped(Bytes size) {
  auto chunk = maker_.make(round_up(size, device_.facts().granularity));
  if (!chunk) return chunk.error();
  auto range = AddressRange::reserve(device_, chunk->size(), device_.facts().granularity);
  if (!range) return range.error();
  const Chunk* const run[] = {&*chunk};
  if (Status mapped = map_run(device_, range->base(), run); !mapped) return mapped.error();
  const CUdeviceptr address = range->base();
  mapped_.emplace(address, Mapped{*std::move(chunk), *std::move(range)});
  return Block{address, size};
}

Status BareMemory::free(const Block& block) {
  if (backing_ == Backing::mem_alloc) {
    APPORTION_CHECK(allocations_.erase(block.address) == 1);
    return driver_status(device_.driver(), device_.driver().mem_free(block.address), "cuMemFree");
  }
  return free_mapped(block);
}

Result<std::unique_ptr<Range>> BareMemory::reserve(Bytes size) {
  return BareRange::reserve(device_, maker_, size);
}

Status BareMemory::free_mapped(const Block& block) {
  const auto found = mapped_.find(block.address);
  APPORTION_CHECK(found != mapped_.end());
  Mapped gone = std::move(found->second);
  mapped_.erase(found);
  if (Status idle = synchronize_context(device_.driver()); !idle) return idle;
  if (Status unmapped = unmap_run(device_.driver(), gone.range.base(), gone.range.size()); !unmapped)
    return unmapped;
  if (Status released = gone.chunk.release(); !released) return released;
  return gone.range.free();
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
