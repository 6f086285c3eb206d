#include "cudasim/driver/linear.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <list>

#include "cudasim/driver/call.hpp"
#include "cudasim/driver/handles.hpp"
#include "cudasim/driver/hooks.hpp"

namespace cudasim {
namespace {

// 2 MiB shared by small allocations of one context and kind.
struct Block {
  Context* context;
  RangeKind kind;
  CUdeviceptr base;
  std::shared_ptr<Allocation> allocation;
  std::map<u64, u64> holes;  // offset -> bytes
};
std::list<Block>& blocks() {  // guarded by the address space's lock
  static auto* list = new std::list<Block>;
  return *list;
}

AllocationKind store_kind(RangeKind kind) {
  if (kind == RangeKind::kManaged) return AllocationKind::kManaged;
  return kind == RangeKind::kAsync ? AllocationKind::kPool : AllocationKind::kLinear;
}

u64 round_up(u64 bytes, u64 step) {
  return (bytes + step - 1) / step * step;
}

// Physical memory with an address; the address is unmapped when `out` could not be made.
CUresult back(Context& context, u64 bytes, RangeKind kind, CUdeviceptr& base,
              std::shared_ptr<Allocation>& out) {
  AllocationSpec spec;
  spec.kind = store_kind(kind);
  spec.device = static_cast<u32>(context.device);
  spec.bytes = bytes;
  spec.may_exceed = kind == RangeKind::kManaged && !break_rule(42);
  spec.location_type = CU_MEM_LOCATION_TYPE_DEVICE;
  spec.location_id = spec.device;
  StoreError error;
  out = Allocation::create(folder(), Process::get().index(), spec, error);
  if (!out) return code_of(error);
  base = reserve_addresses(bytes, kGranularity, 0);
  const bool host_access = kind == RangeKind::kManaged || !control().strict;
  if (base &&
      out->map(bytes, reinterpret_cast<void*>(base), host_access ? PROT_READ | PROT_WRITE : PROT_NONE))
    return CUDA_SUCCESS;
  if (base) return_addresses(base, bytes);
  out.reset();
  return CUDA_ERROR_OUT_OF_MEMORY;
}

void add(AddressSpace& space, Context& context, CUdeviceptr base, u64 bytes, RangeKind kind,
         std::shared_ptr<Allocation> allocation, u64 offset) {
  Mapping mapping;
  mapping.base = base;
  mapping.bytes = bytes;
  mapping.kind = kind;
  mapping.allocation = std::move(allocation);
  mapping.offset = offset;
  mapping.access.fill(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  mapping.context = &context;
  mapping.device = context.device;
  mapping.id = next_buffer_id();
  space.ranges[base] = Range{base, bytes, kind, false};
  space.mappings[base] = std::move(mapping);
}

bool take_from(Block& block, u64 bytes, u64& offset) {
  for (auto hole = block.holes.begin(); hole != block.holes.end(); ++hole) {
    if (hole->second < bytes) continue;
    offset = hole->first;
    const u64 rest = hole->second - bytes;
    block.holes.erase(hole);
    if (rest) block.holes[offset + bytes] = rest;
    return true;
  }
  return false;
}

void give_to(Block& block, u64 offset, u64 bytes) {
  auto hole = block.holes.emplace(offset, bytes).first;
  auto next = std::next(hole);
  if (next != block.holes.end() && hole->first + hole->second == next->first) {
    hole->second += next->second;
    block.holes.erase(next);
  }
  if (hole == block.holes.begin()) return;
  auto before = std::prev(hole);
  if (before->first + before->second != hole->first) return;
  before->second += hole->second;
  block.holes.erase(hole);
}

CUresult allocate_small(Context& context, u64 bytes, RangeKind kind, CUdeviceptr* out) {
  AddressSpace& space = AddressSpace::get();
  const u64 step = round_up(bytes, kLinearAlignment);
  std::unique_lock lock(space.mutex);
  for (int round = 0; round < 2; round++) {
    for (Block& block : blocks()) {
      u64 offset = 0;
      if (block.context != &context || block.kind != kind || !take_from(block, step, offset)) continue;
      *out = block.base + offset;
      add(space, context, *out, bytes, kind, block.allocation, offset);
      return CUDA_SUCCESS;
    }
    Block block{&context, kind, 0, nullptr, {{0, kGranularity}}};
    if (CUresult code = back(context, kGranularity, kind, block.base, block.allocation); code != CUDA_SUCCESS)
      return code;
    blocks().push_back(std::move(block));
  }
  return CUDA_ERROR_OUT_OF_MEMORY;
}

// Ends one allocation; what must be destroyed after the lock is put into `gone`.
void remove(AddressSpace& space, std::map<CUdeviceptr, Mapping>::iterator found,
            std::vector<std::shared_ptr<Allocation>>& gone) {
  Mapping mapping = std::move(found->second);
  space.mappings.erase(found);
  space.ranges.erase(mapping.base);
  auto block = std::find_if(blocks().begin(), blocks().end(), [&](const Block& candidate) {
    return candidate.allocation == mapping.allocation;
  });
  gone.push_back(std::move(mapping.allocation));
  if (block == blocks().end()) {
    return_addresses(mapping.base, round_up(mapping.bytes, kGranularity));
    return;
  }
  give_to(*block, mapping.offset, round_up(mapping.bytes, kLinearAlignment));
  if (block->holes.begin()->second != kGranularity) return;
  return_addresses(block->base, kGranularity);
  blocks().erase(block);
}

}  // namespace

CUresult linear_allocate(Context& context, u64 bytes, RangeKind kind, CUdeviceptr* out) {
  if (bytes < kSmallLinear) return allocate_small(context, bytes, kind, out);
  const u64 whole = round_up(bytes, kGranularity);
  if (whole < bytes) return CUDA_ERROR_OUT_OF_MEMORY;
  std::shared_ptr<Allocation> allocation;
  CUdeviceptr base = 0;
  if (CUresult code = back(context, whole, kind, base, allocation); code != CUDA_SUCCESS) return code;
  AddressSpace& space = AddressSpace::get();
  std::unique_lock lock(space.mutex);
  add(space, context, base, bytes, kind, std::move(allocation), 0);
  *out = base;
  return CUDA_SUCCESS;
}

CUresult linear_free(CUdeviceptr address, RangeKind kind) {
  AddressSpace& space = AddressSpace::get();
  std::vector<std::shared_ptr<Allocation>> gone;
  std::unique_lock lock(space.mutex);
  auto found = space.mappings.find(address);
  if (found == space.mappings.end() || found->second.kind != kind) return codes::kFreeUnknown;
  remove(space, found, gone);
  return CUDA_SUCCESS;
}

void linear_context_gone(Context& context) {
  AddressSpace& space = AddressSpace::get();
  std::vector<std::shared_ptr<Allocation>> gone;
  std::unique_lock lock(space.mutex);
  for (auto it = space.mappings.begin(); it != space.mappings.end();) {
    auto next = std::next(it);
    if (it->second.context == &context && it->second.kind != RangeKind::kIpc) remove(space, it, gone);
    it = next;
  }
}

}  // namespace cudasim
