#include "cudasim/driver/address_space.hpp"

#include <sys/mman.h>

namespace cudasim {
namespace {

template <typename Map>
auto entry_at(const Map& map, CUdeviceptr address) {
  auto after = map.upper_bound(address);
  if (after == map.begin()) return map.end();
  --after;
  return address - after->second.base < after->second.bytes ? after : map.end();
}

void* anonymous(CUdeviceptr wish, u64 bytes, int flags) {
  return ::mmap(reinterpret_cast<void*>(wish), bytes, PROT_NONE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
}

}  // namespace

CUdeviceptr reserve_addresses(u64 bytes, u64 alignment, CUdeviceptr wish) {
  if (wish && wish % alignment == 0) {
    void* memory = anonymous(wish, bytes, MAP_FIXED_NOREPLACE);
    if (memory == reinterpret_cast<void*>(wish)) return wish;
    if (memory != MAP_FAILED) ::munmap(memory, bytes);  // a kernel that does not know the flag
  }
  if (bytes + alignment < bytes) return 0;
  void* memory = anonymous(0, bytes + alignment, 0);
  if (memory == MAP_FAILED) return 0;
  const CUdeviceptr start = reinterpret_cast<CUdeviceptr>(memory);
  const CUdeviceptr base = (start + alignment - 1) / alignment * alignment;
  if (base > start) ::munmap(memory, base - start);
  const u64 tail = start + bytes + alignment - (base + bytes);
  if (tail) ::munmap(reinterpret_cast<void*>(base + bytes), tail);
  return base;
}

void clear_addresses(CUdeviceptr address, u64 bytes) {
  anonymous(address, bytes, MAP_FIXED);
}

void return_addresses(CUdeviceptr address, u64 bytes) {
  ::munmap(reinterpret_cast<void*>(address), bytes);
}

AddressSpace& AddressSpace::get() {
  static auto* space = new AddressSpace;  // leaked: driver calls may come from exit handlers
  return *space;
}

std::optional<Mapping> AddressSpace::find(CUdeviceptr address) const {
  std::shared_lock lock(mutex);
  auto found = entry_at(mappings, address);
  return found == mappings.end() ? std::nullopt : std::optional(found->second);
}

std::optional<Range> AddressSpace::find_range(CUdeviceptr address) const {
  std::shared_lock lock(mutex);
  auto found = entry_at(ranges, address);
  return found == ranges.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace cudasim
