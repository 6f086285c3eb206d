// cuMemAlloc and its family: linear and managed memory, its sizes and places (rules 28 to 30, 35, 42).
#include <bit>

#include "cudasim/driver/access.hpp"
#include "cudasim/driver/call.hpp"
#include "cudasim/driver/hooks.hpp"
#include "cudasim/driver/linear.hpp"

namespace cudasim {
namespace {

// Before the call is checked: the folder may be missing.
bool broken(u32 rule) {
  return Process::get().folder() && break_rule(rule);
}

CUresult allocate(CUdeviceptr* out, u64 bytes, RangeKind kind) {
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  if (bytes == 0 && !break_rule(29)) return CUDA_ERROR_INVALID_VALUE;
  const CUresult code = linear_allocate(*current_context(), bytes ? bytes : 1, kind, out);
  if (code == CUDA_SUCCESS && break_rule(29)) return fill_device(current_context(), *out, 0, 1, bytes);
  return code;
}

CUresult allocate_pitch(CUdeviceptr* out, size_t* pitch, u64 width, u64 height, unsigned element) {
  if (!out || !pitch || !width || !height || (element != 4 && element != 8 && element != 16))
    return CUDA_ERROR_INVALID_VALUE;
  const u64 row = (width + kLinearAlignment - 1) / kLinearAlignment * kLinearAlignment;
  if (row < width || height > ~u64{0} / row) return CUDA_ERROR_INVALID_VALUE;
  *pitch = row;
  return allocate(out, row * height, RangeKind::kLinear);
}

// Rule 35: another process still has it open; on a device, undefined.
void check_importers(const Mapping& mapping) {
  settle(folder(), Census::kQuick);
  const AllocationSlot& record = mapping.allocation->record();
  if (mapping.offset || record.bytes == kGranularity) return;  // shared block: holders may be a neighbour's
  const u32 own = Process::get().index();
  for (u32 word = 0; word < kMaxProcesses / 64; word++) {
    u64 others = record.holders[word];
    if (word == own / 64) others &= ~(u64{1} << (own % 64));
    if (!others || break_rule(35)) continue;
    violation("freed while another process has it open", mapping.base);
    return;
  }
}

CUresult release(CUdeviceptr address) {
  if (!address) return CUDA_SUCCESS;
  auto mapping = AddressSpace::get().find(address);
  if (mapping && mapping->kind == RangeKind::kAsync && mapping->base == address && hooks().free_async) {
    bool handled = false;
    const CUresult code = hooks().free_async(address, handled);
    if (handled) return code;
  }
  const bool ours = mapping && mapping->base == address &&
                    (mapping->kind == RangeKind::kLinear || mapping->kind == RangeKind::kManaged);
  if (!ours) return break_rule(30) ? CUDA_SUCCESS : codes::kFreeUnknown;
  check_pending(address, mapping->bytes, "freed under pending work");
  if (mapping->context && hooks().synchronise) hooks().synchronise(*mapping->context);
  if (mapping->kind == RangeKind::kLinear) check_importers(*mapping);
  if (mapping->bytes >= kGranularity) mapping->allocation->record().freed = 1;
  return linear_free(address, mapping->kind);
}

CUresult get_info(size_t* free_bytes, size_t* total_bytes) {
  if (break_rule(28) && (!free_bytes || !total_bytes)) return CUDA_ERROR_INVALID_VALUE;
  const int device = current_context() ? current_context()->device : 0;
  const u64 total = device_record(device).total_bytes;
  const u64 used = used_bytes(folder(), static_cast<u32>(device), Census::kQuick);
  if (free_bytes) *free_bytes = used < total ? total - used : 0;
  if (total_bytes) *total_bytes = total;
  return CUDA_SUCCESS;
}

CUresult address_range(CUdeviceptr* base, size_t* bytes, CUdeviceptr address) {
  auto mapping = AddressSpace::get().find(address);
  if (!mapping) return CUDA_ERROR_NOT_FOUND;
  if (base) *base = mapping->base;
  if (bytes) *bytes = mapping->bytes;
  return CUDA_SUCCESS;
}

CUresult advise(CUdeviceptr address, u64 bytes) {
  auto mapping = AddressSpace::get().find(address);
  const bool managed = mapping && mapping->kind == RangeKind::kManaged && bytes &&
                       bytes <= mapping->base + mapping->bytes - address;
  return managed ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace
}  // namespace cudasim

using namespace cudasim;

extern "C" {

CUresult CUDAAPI cuMemAlloc_v2(CUdeviceptr* out, size_t bytes) {
  CUDASIM_CALL(cuMemAlloc_v2, broken(29) ? Needs::kDriver : Needs::kContext, bytes);
  if (!current_context()) return call.done(CUDA_SUCCESS);
  return call.done(allocate(out, bytes, RangeKind::kLinear));
}
CUresult CUDAAPI cuMemAllocPitch_v2(CUdeviceptr* out, size_t* pitch, size_t width, size_t height,
                                    unsigned element) {
  CUDASIM_CALL(cuMemAllocPitch_v2, Needs::kContext, width, height);
  return call.done(allocate_pitch(out, pitch, width, height, element));
}
CUresult CUDAAPI cuMemAllocManaged(CUdeviceptr* out, size_t bytes, unsigned flags) {
  CUDASIM_CALL(cuMemAllocManaged, Needs::kContext, bytes, flags);
  if (!std::has_single_bit(flags) || flags > CU_MEM_ATTACH_SINGLE) return call.done(CUDA_ERROR_INVALID_VALUE);
  return call.done(allocate(out, bytes, RangeKind::kManaged));
}
CUresult CUDAAPI cuMemFree_v2(CUdeviceptr address) {
  CUDASIM_CALL(cuMemFree_v2, Needs::kContext, address);
  return call.done(release(address));
}
CUresult CUDAAPI cuMemGetInfo_v2(size_t* free_bytes, size_t* total_bytes) {
  CUDASIM_CALL(cuMemGetInfo_v2, broken(28) ? Needs::kDriver : Needs::kContext);
  return call.done(get_info(free_bytes, total_bytes));
}
CUresult CUDAAPI cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* bytes, CUdeviceptr address) {
  CUDASIM_CALL(cuMemGetAddressRange_v2, Needs::kContext, address);
  return call.done(address_range(base, bytes, address));
}
CUresult CUDAAPI cuMemAdvise(CUdeviceptr address, size_t bytes, CUmem_advise, CUdevice) {
  CUDASIM_CALL(cuMemAdvise, Needs::kContext, address, bytes);
  return call.done(advise(address, bytes));
}
CUresult CUDAAPI cuMemAdvise_v2(CUdeviceptr address, size_t bytes, CUmem_advise, CUmemLocation) {
  CUDASIM_CALL(cuMemAdvise_v2, Needs::kContext, address, bytes);
  return call.done(advise(address, bytes));
}
CUresult CUDAAPI cuMemPrefetchAsync(CUdeviceptr address, size_t bytes, CUdevice, CUstream) {
  CUDASIM_CALL(cuMemPrefetchAsync, Needs::kContext, address, bytes);
  return call.done(advise(address, bytes));
}
CUresult CUDAAPI cuMemPrefetchAsync_v2(CUdeviceptr address, size_t bytes, CUmemLocation, unsigned, CUstream) {
  CUDASIM_CALL(cuMemPrefetchAsync_v2, Needs::kContext, address, bytes);
  return call.done(advise(address, bytes));
}

}  // extern "C"
