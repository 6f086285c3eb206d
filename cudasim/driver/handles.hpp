// VMM handles of this process: made by create and import, ended by release and unmap.
//
// A handle's value is never used twice, so that a second release is always recognised (rule 8).
#pragma once
#include "cudasim/driver/address_space.hpp"

namespace cudasim {

// A new handle with one reference. Takes the address space's lock.
CUmemGenericAllocationHandle add_handle(std::shared_ptr<Allocation> allocation, bool imported);
// The handle with an unreleased reference; nullptr otherwise. Caller holds the lock.
std::shared_ptr<Handle> find_handle(AddressSpace& space, CUmemGenericAllocationHandle id);
// `id` was given out once by this process.
bool was_handle(CUmemGenericAllocationHandle id);
u64 next_buffer_id();
inline bool is_host(const CUmemLocation& location) {
  return location.type == CU_MEM_LOCATION_TYPE_HOST || location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
}

CUresult code_of(StoreError error);

}  // namespace cudasim
