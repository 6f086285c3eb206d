// Virtual memory management: reservations, mappings, access (rules 10 to 18).
#include <sys/mman.h>

#include <algorithm>

#include "cudasim/driver/address_space.hpp"
#include "cudasim/driver/call.hpp"
#include "cudasim/driver/handles.hpp"
#include "cudasim/driver/hooks.hpp"

namespace cudasim {
namespace {

CUresult reserve(CUdeviceptr* out, u64 bytes, u64 alignment, CUdeviceptr wish, unsigned long long flags) {
  if (!out || flags || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const bool odd = bytes % kPage || wish % kPage || (alignment & (alignment - 1));
  if (odd && !break_rule(10)) return CUDA_ERROR_INVALID_VALUE;
  if (odd) bytes = (bytes + kPage - 1) / kPage * kPage, wish = 0, alignment = 0;
  const CUdeviceptr base = reserve_addresses(bytes, std::max<u64>(alignment, kGranularity), wish);
  if (!base) return CUDA_ERROR_OUT_OF_MEMORY;
  AddressSpace& space = AddressSpace::get();
  std::unique_lock lock(space.mutex);
  space.ranges[base] = Range{base, bytes, RangeKind::kVmm, false};
  *out = base;
  return CUDA_SUCCESS;
}

// The mappings inside [address, address + bytes), first and past-last. Caller holds the lock.
auto mappings_in(AddressSpace& space, CUdeviceptr address, u64 bytes) {
  auto first = space.mappings.lower_bound(address);
  if (first != space.mappings.begin()) {
    auto before = std::prev(first);
    if (before->first + before->second.bytes > address) first = before;
  }
  return std::pair(first, space.mappings.lower_bound(address + bytes));
}

using Gone = std::vector<std::shared_ptr<Handle>>;

// Ends the mappings [first, last); handles that die with them go to `gone`.
template <typename Iterator>
void end_mappings(AddressSpace& space, Iterator first, Iterator last, Gone& gone) {
  for (auto it = first; it != last; it = space.mappings.erase(it)) {
    clear_addresses(it->second.base, it->second.bytes);
    auto& handle = it->second.handle;
    if (--handle->mappings == 0 && handle->references == 0) {
      space.handles.erase(handle->id);
      gone.push_back(handle);
    }
  }
}

bool inside_reservation(const AddressSpace& space, CUdeviceptr address, u64 bytes) {
  auto after = space.ranges.upper_bound(address);
  if (after == space.ranges.begin()) return false;
  const Range& range = std::prev(after)->second;
  return range.kind == RangeKind::kVmm && address - range.base < range.bytes &&
         bytes <= range.bytes - (address - range.base);
}

CUresult free_address(CUdeviceptr address, u64 bytes) {
  AddressSpace& space = AddressSpace::get();
  Gone gone;
  std::unique_lock lock(space.mutex);
  auto range = space.ranges.find(address);
  if (break_rule(11) && range == space.ranges.end() && inside_reservation(space, address, 1))
    range = std::prev(space.ranges.upper_bound(address));
  if (range == space.ranges.end() || range->second.kind != RangeKind::kVmm) return CUDA_ERROR_INVALID_VALUE;
  if (range->second.bytes != bytes && !break_rule(11)) return CUDA_ERROR_INVALID_VALUE;
  address = range->second.base;
  bytes = range->second.bytes;
  auto [first, last] = mappings_in(space, address, bytes);
  if (first != last && !break_rule(11)) return codes::kAddressFreeMapped;
  end_mappings(space, first, last, gone);
  space.ranges.erase(range);
  return_addresses(address, bytes);
  return CUDA_SUCCESS;
}

CUresult map(CUdeviceptr address, u64 bytes, u64 offset, CUmemGenericAllocationHandle id,
             unsigned long long flags) {
  AddressSpace& space = AddressSpace::get();
  Gone gone;
  std::unique_lock lock(space.mutex);
  auto handle = find_handle(space, id);
  if (!handle || flags || bytes == 0 || address % kGranularity || bytes % kGranularity)
    return CUDA_ERROR_INVALID_VALUE;
  if (!inside_reservation(space, address, bytes))
    return break_rule(12) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  const u64 whole = handle->allocation->bytes();
  if ((offset != 0 || bytes != whole) && !break_rule(12)) return CUDA_ERROR_INVALID_VALUE;
  bytes = std::min(bytes, whole);
  auto [first, last] = mappings_in(space, address, bytes);
  if (first != last && !break_rule(12)) return codes::kMapOnMapped;
  if (handle->mappings && break_rule(14)) return CUDA_ERROR_INVALID_VALUE;
  end_mappings(space, first, last, gone);
  if (!handle->allocation->map(bytes, reinterpret_cast<void*>(address), PROT_NONE)) {
    clear_addresses(address, bytes);
    return CUDA_ERROR_OUT_OF_MEMORY;  // max_map_count
  }
  Mapping mapping;
  mapping.base = address;
  mapping.bytes = bytes;
  mapping.allocation = handle->allocation;
  mapping.handle = handle;
  mapping.device =
      handle->properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE ? handle->properties.location.id : 0;
  mapping.id = next_buffer_id();
  if (break_rule(13)) mapping.access.fill(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  handle->mappings++;
  space.mappings[address] = std::move(mapping);
  return CUDA_SUCCESS;
}

// Rule 17: exactly whole mappings; other addresses in between must not be unmapped ones.
bool whole_mappings(AddressSpace& space, CUdeviceptr address, u64 bytes) {
  auto [first, last] = mappings_in(space, address, bytes);
  CUdeviceptr next = address;
  for (auto it = first; it != last; ++it) {
    if (it->first != next || it->second.kind != RangeKind::kVmm) return false;
    next += it->second.bytes;
  }
  return first != last && next == address + bytes;
}

CUresult unmap(Call& call, CUdeviceptr address, u64 bytes) {
  if (break_rule(18) && current_context() && hooks().synchronise) hooks().synchronise(*current_context());
  check_pending(address, bytes, "unmapped under pending work");
  AddressSpace& space = AddressSpace::get();
  Gone gone;
  std::unique_lock lock(space.mutex);
  if (!inside_reservation(space, address, bytes)) return CUDA_ERROR_INVALID_VALUE;
  if (!whole_mappings(space, address, bytes) && !break_rule(17)) return CUDA_ERROR_INVALID_VALUE;
  auto [first, last] = mappings_in(space, address, bytes);
  if (break_rule(17) && whole_mappings(space, address, bytes) && std::next(first) != last)
    return CUDA_ERROR_INVALID_VALUE;
  const u64 count = static_cast<u64>(std::distance(first, last));
  end_mappings(space, first, last, gone);
  lock.unlock();
  call.delay_again(count ? count - 1 : 0);
  return CUDA_SUCCESS;
}

// Rule 16: the importer's own choice. Broken on purpose, it gets no more than the creator has set.
CUmemAccess_flags chosen_access(const Mapping& mapping, CUmemAccess_flags flags) {
  AllocationSlot& record = mapping.allocation->record();
  if (!mapping.handle->imported) record.creator_access = static_cast<u32>(flags) + 1;
  const u32 creator = record.creator_access;
  if (!break_rule(16) || !mapping.handle->imported || creator == 0) return flags;
  return static_cast<CUmemAccess_flags>(std::min<u32>(flags, creator - 1));
}

CUresult set_access(Call& call, CUdeviceptr address, u64 bytes, const CUmemAccessDesc* descriptions,
                    u64 count) {
  if (!descriptions || count == 0 || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  AddressSpace& space = AddressSpace::get();
  std::unique_lock lock(space.mutex);
  if (!inside_reservation(space, address, bytes)) return CUDA_ERROR_INVALID_VALUE;
  if (!whole_mappings(space, address, bytes) && !break_rule(15)) return CUDA_ERROR_INVALID_VALUE;
  auto [first, last] = mappings_in(space, address, bytes);
  if (break_rule(15) && whole_mappings(space, address, bytes) && std::next(first) != last)
    return CUDA_ERROR_INVALID_VALUE;
  for (u64 i = 0; i < count; i++) {
    const auto& [location, flags] = descriptions[i];
    if (flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
        flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
      return CUDA_ERROR_INVALID_VALUE;
    if (location.type == CU_MEM_LOCATION_TYPE_DEVICE && !known_device(location.id))
      return CUDA_ERROR_INVALID_DEVICE;
    if (location.type != CU_MEM_LOCATION_TYPE_DEVICE && !is_host(location)) return CUDA_ERROR_INVALID_VALUE;
    for (auto it = first; it != last; ++it)
      if (is_host(location) && !is_host(it->second.handle->properties.location))
        return CUDA_ERROR_INVALID_VALUE;
  }
  for (auto it = first; it != last; ++it) {
    Mapping& mapping = it->second;
    for (u64 i = 0; i < count; i++) {
      const auto& [location, flags] = descriptions[i];
      const auto access = chosen_access(mapping, flags);
      if (location.type == CU_MEM_LOCATION_TYPE_DEVICE)
        mapping.access[static_cast<size_t>(location.id)] = static_cast<u8>(access);
      if (control().strict && !is_host(location)) continue;  // a host read of device memory must fault
      const int protection = access == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? PROT_READ | PROT_WRITE
                             : access == CU_MEM_ACCESS_FLAGS_PROT_READ    ? PROT_READ
                                                                          : PROT_NONE;
      ::mprotect(reinterpret_cast<void*>(mapping.base), mapping.bytes, protection);
    }
  }
  const u64 handles = static_cast<u64>(std::distance(first, last));
  lock.unlock();
  call.delay_again(handles ? handles - 1 : 0);
  return CUDA_SUCCESS;
}

CUresult get_access(unsigned long long* out, const CUmemLocation* location, CUdeviceptr address) {
  if (!out || !location) return CUDA_ERROR_INVALID_VALUE;
  auto mapping = AddressSpace::get().find(address);
  if (!mapping || mapping->kind != RangeKind::kVmm) return CUDA_ERROR_INVALID_VALUE;
  if (location->type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
  if (!known_device(location->id)) return CUDA_ERROR_INVALID_DEVICE;
  *out = mapping->access[static_cast<size_t>(location->id)];
  if (break_rule(15) && *out == CU_MEM_ACCESS_FLAGS_PROT_READ) *out = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace cudasim

using namespace cudasim;

extern "C" {

CUresult CUDAAPI cuMemAddressReserve(CUdeviceptr* out, size_t bytes, size_t alignment, CUdeviceptr wish,
                                     unsigned long long flags) {
  CUDASIM_CALL(cuMemAddressReserve, Needs::kDriver, bytes, wish);
  return call.done(reserve(out, bytes, alignment, wish, flags));
}
CUresult CUDAAPI cuMemAddressFree(CUdeviceptr address, size_t bytes) {
  CUDASIM_CALL(cuMemAddressFree, Needs::kDriver, address, bytes);
  return call.done(free_address(address, bytes));
}
CUresult CUDAAPI cuMemMap(CUdeviceptr address, size_t bytes, size_t offset,
                          CUmemGenericAllocationHandle handle, unsigned long long flags) {
  CUDASIM_CALL(cuMemMap, Needs::kDriver, address, bytes);
  return call.done(map(address, bytes, offset, handle, flags));
}
CUresult CUDAAPI cuMemUnmap(CUdeviceptr address, size_t bytes) {
  CUDASIM_CALL(cuMemUnmap, Needs::kDriver, address, bytes);
  return call.done(unmap(call, address, bytes));
}
CUresult CUDAAPI cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc* descriptions,
                                size_t count) {
  CUDASIM_CALL(cuMemSetAccess, Needs::kDriver, address, bytes);
  return call.done(set_access(call, address, bytes, descriptions, count));
}
CUresult CUDAAPI cuMemGetAccess(unsigned long long* out, const CUmemLocation* location, CUdeviceptr address) {
  CUDASIM_CALL(cuMemGetAccess, Needs::kDriver, address);
  return call.done(get_access(out, location, address));
}

}  // extern "C"
