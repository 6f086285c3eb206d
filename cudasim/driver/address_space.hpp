// Every device address of this process: reservations, what is mapped where, linear allocations.
//
// Promises: an address belongs to at most one range; look-ups are O(log n). One lock, taken inside; no
// method calls back. Host memory that the driver knows (pinned, registered) is in host_memory.hpp.
#pragma once
#include <array>
#include <map>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <vector>

#include "cudasim/driver/cuda_api.hpp"
#include "cudasim/store/allocation.hpp"

namespace cudasim {

struct Context;

// A VMM handle: cuMemCreate or one import. Dies when unreleased references and mappings are both gone.
struct Handle {
  u64 id = 0;
  std::shared_ptr<Allocation> allocation;
  CUmemAllocationProp properties{};
  bool imported = false;
  u64 references = 1;  // user's: create, import, retain (rules 8, 25)
  u64 mappings = 0;
};

enum class RangeKind { kVmm, kLinear, kManaged, kAsync, kIpc };

// Address space that is owned by somebody, mapped or not.
struct Range {
  CUdeviceptr base = 0;
  u64 bytes = 0;
  RangeKind kind = RangeKind::kVmm;
  bool read_only = false;
};

// Bytes at an address: one VMM mapping, or one linear allocation (which may be part of a shared block).
struct Mapping {
  CUdeviceptr base = 0;
  u64 bytes = 0;
  RangeKind kind = RangeKind::kVmm;
  std::shared_ptr<Allocation> allocation;
  u64 offset = 0;                        // into the allocation
  std::shared_ptr<Handle> handle;        // kVmm only
  std::array<u8, kMaxDevices> access{};  // CUmemAccess_flags per device (rule 13: none until set)
  Context* context = nullptr;            // of linear allocations
  int device = 0;
  u64 id = 0;     // CU_POINTER_ATTRIBUTE_BUFFER_ID
  u64 opens = 1;  // kIpc: opens in this context (rule 33)
};

// Address space of `bytes`, aligned, without access; at `wish` when that is free. 0: the kernel refuses.
CUdeviceptr reserve_addresses(u64 bytes, u64 alignment, CUdeviceptr wish);
// Back to a reservation: whatever was mapped there is gone.
void clear_addresses(CUdeviceptr address, u64 bytes);
void return_addresses(CUdeviceptr address, u64 bytes);

class AddressSpace {
 public:
  static AddressSpace& get();

  // The mapping that contains `address`; nullopt: none.
  std::optional<Mapping> find(CUdeviceptr address) const;
  // The range (reservation or linear allocation) that contains `address`, mapped or not.
  std::optional<Range> find_range(CUdeviceptr address) const;

  mutable std::shared_mutex mutex;  // held by vmm.cpp and linear.cpp around what follows
  std::map<CUdeviceptr, Range> ranges;
  std::map<CUdeviceptr, Mapping> mappings;
  std::map<u64, std::shared_ptr<Handle>> handles;
  u64 next_handle_id = 0;
};

}  // namespace cudasim
