// Virtual memory management: physical allocations (rules 2 to 9).
#include <algorithm>
#include <cstdlib>

#include "cudasim/driver/call.hpp"
#include "cudasim/driver/handles.hpp"

namespace cudasim {
namespace {

CUresult check_location(const CUmemAllocationProp& properties) {
  const CUmemLocation& location = properties.location;
  if (location.type == CU_MEM_LOCATION_TYPE_DEVICE)
    return known_device(location.id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
  if (location.type == CU_MEM_LOCATION_TYPE_HOST && properties.requestedHandleTypes && !break_rule(4))
    return CUDA_ERROR_INVALID_VALUE;
  if (location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT && break_rule(4)) return CUDA_SUCCESS;
  return is_host(location) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult check_properties(const CUmemAllocationProp* properties) {
  if (!properties) return CUDA_ERROR_INVALID_VALUE;
  if (properties->type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult code = check_location(*properties); code != CUDA_SUCCESS) return code;
  const unsigned types = properties->requestedHandleTypes;
  if (types & CU_MEM_HANDLE_TYPE_FABRIC)
    return break_rule(5) ? CUDA_ERROR_INVALID_VALUE : codes::kCreateFabric;
  if (types & (CU_MEM_HANDLE_TYPE_WIN32 | CU_MEM_HANDLE_TYPE_WIN32_KMT)) return CUDA_ERROR_NOT_SUPPORTED;
  if (types & ~15u) return CUDA_ERROR_INVALID_VALUE;
  const int device = properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE ? properties->location.id : 0;
  if (!device_record(device).vmm_supported) return CUDA_ERROR_NOT_SUPPORTED;
  return device_record(device).lost ? codes::kDeviceLost : CUDA_SUCCESS;
}

AllocationSpec spec_of(const CUmemAllocationProp& properties, u64 bytes) {
  AllocationSpec spec;
  spec.on_device = properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE;
  spec.kind = spec.on_device ? AllocationKind::kVmm : AllocationKind::kHost;
  spec.device = spec.on_device ? static_cast<u32>(properties.location.id) : 0;
  spec.bytes = bytes;
  spec.location_type = properties.location.type;
  spec.location_id = static_cast<u32>(properties.location.id);
  spec.handle_types = properties.requestedHandleTypes;
  spec.rdma = properties.allocFlags.gpuDirectRDMACapable;
  spec.usage = properties.allocFlags.usage;
  return spec;
}

CUresult create(CUmemGenericAllocationHandle* out, u64 bytes, const CUmemAllocationProp* properties,
                unsigned long long flags) {
  if (!out || (flags && !break_rule(3))) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult code = check_properties(properties); code != CUDA_SUCCESS) return code;
  if ((bytes == 0 || bytes % kGranularity) && !break_rule(3)) return codes::kCreateBadSize;
  bytes = std::max<u64>(1, (bytes + kGranularity - 1) / kGranularity) * kGranularity;
  StoreError error;
  auto allocation = Allocation::create(folder(), Process::get().index(), spec_of(*properties, bytes), error);
  if (!allocation) return code_of(error);
  *out = add_handle(std::move(allocation), false);
  return CUDA_SUCCESS;
}

// Rules 8 and 9, broken on purpose: the bytes of a mapping do not outlive its handle.
void break_release_while_mapped(Allocation& allocation) {
  if (break_rule(8)) allocation.zero(0, allocation.bytes());
  if (break_rule(9)) allocation.give_back_charge();
}

CUresult release(CUmemGenericAllocationHandle id) {
  AddressSpace& space = AddressSpace::get();
  std::shared_ptr<Handle> last;  // its destruction takes the folder's lock: after the address space's
  std::unique_lock lock(space.mutex);
  auto handle = find_handle(space, id);
  if (!handle) {
    lock.unlock();
    if (was_handle(id) && control().strict && !break_rule(8)) {
      violation("released twice", id);
      std::abort();  // rule 8: undefined on a device; strict mode makes it loud
    }
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (--handle->references > 0) return CUDA_SUCCESS;
  handle->allocation->record().handles--;
  if (handle->mappings == 0) {
    last = std::move(handle);
    space.handles.erase(id);
  } else {
    break_release_while_mapped(*handle->allocation);
  }
  return CUDA_SUCCESS;
}

CUresult granularity(size_t* out, const CUmemAllocationProp* properties, unsigned option) {
  if (!out || option > CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) return CUDA_ERROR_INVALID_VALUE;
  if (break_rule(2)) {
    *out = 2 * kGranularity;
    return CUDA_SUCCESS;
  }
  if (!properties || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult code = check_location(*properties); code != CUDA_SUCCESS) return code;
  *out = kGranularity;
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace cudasim

using namespace cudasim;

extern "C" {

CUresult CUDAAPI cuMemCreate(CUmemGenericAllocationHandle* out, size_t bytes,
                             const CUmemAllocationProp* properties, unsigned long long flags) {
  CUDASIM_CALL(cuMemCreate, Needs::kDriver, bytes, flags);
  return call.done(create(out, bytes, properties, flags));
}
CUresult CUDAAPI cuMemRelease(CUmemGenericAllocationHandle handle) {
  CUDASIM_CALL(cuMemRelease, Needs::kDriver, handle);
  return call.done(release(handle));
}
CUresult CUDAAPI cuMemGetAllocationGranularity(size_t* out, const CUmemAllocationProp* properties,
                                               CUmemAllocationGranularity_flags option) {
  CUDASIM_CALL(cuMemGetAllocationGranularity, Needs::kInit, option);
  return call.done(granularity(out, properties, option));
}

}  // extern "C"
