// What an address is: cuPointerGetAttribute(s) (rule 27).
#include <cstring>

#include "cudasim/driver/address_space.hpp"
#include "cudasim/driver/call.hpp"
#include "cudasim/driver/host_memory.hpp"

namespace cudasim {
namespace {

template <typename T>
CUresult put(void* out, T value) {
  std::memcpy(out, &value, sizeof value);
  return CUDA_SUCCESS;
}

struct Place {
  std::optional<Range> range;
  std::optional<Mapping> mapping;
  std::optional<HostMemory> host;
  bool known() const { return range || mapping || host; }
};

Place place_of(CUdeviceptr address) {
  AddressSpace& space = AddressSpace::get();
  return {space.find_range(address), space.find(address), find_host_memory(address)};
}

bool legacy_ipc(const Place& place) {
  const bool vmm = place.range && place.range->kind == RangeKind::kVmm;
  if (vmm && break_rule(27)) return true;
  return place.mapping && place.mapping->kind == RangeKind::kLinear;
}

CUmemorytype memory_type(const Place& place) {
  return place.host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
}

bool host_readable(const Place& place) {
  return place.host || (place.mapping && place.mapping->kind == RangeKind::kManaged);
}

CUresult range_attribute(const Place& place, CUpointer_attribute attribute, void* out) {
  const bool start = attribute == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR;
  if (place.host) return start ? put(out, place.host->base) : put<size_t>(out, place.host->bytes);
  if (break_rule(27) && place.mapping)
    return start ? put(out, place.mapping->base) : put<size_t>(out, place.mapping->bytes);
  return start ? put(out, place.range->base) : put<size_t>(out, place.range->bytes);
}

CUresult mapping_attribute(const Place& place, CUpointer_attribute attribute, void* out) {
  const Mapping& mapping = *place.mapping;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      return put<unsigned long long>(out, mapping.id);
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      return put<size_t>(out, mapping.bytes);
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      return put(out, mapping.base);
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return put<unsigned long long>(out, mapping.allocation->serial());
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return put<unsigned long long>(out, mapping.allocation->record().handle_types);
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
      return put<bool>(out, mapping.kind == RangeKind::kLinear || mapping.allocation->record().rdma);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS: {
      const Context* context = current_context();
      if (!context) return CUDA_ERROR_INVALID_CONTEXT;
      return put<unsigned>(out, mapping.access[static_cast<size_t>(context->device)]);
    }
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult attribute_of(const Place& place, CUpointer_attribute attribute, CUdeviceptr address, void* out) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      if (place.host) return put(out, place.host->context);
      if (!place.mapping || !place.mapping->context) return put<CUcontext>(out, nullptr);
      return put(out, handle_of(place.mapping->context));
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return put<unsigned>(out, memory_type(place));
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      return put(out, address);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      return host_readable(place) ? put(out, reinterpret_cast<void*>(address)) : CUDA_ERROR_INVALID_VALUE;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      return put<unsigned>(out, 0);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return put<unsigned>(out, place.mapping && place.mapping->kind == RangeKind::kManaged);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return put<int>(out, place.mapping ? place.mapping->device : 0);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      return put<unsigned>(out, legacy_ipc(place));
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return range_attribute(place, attribute, out);
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return put<unsigned>(out, place.mapping || place.host);
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return put<CUmemoryPool>(out, nullptr);
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
      return put<bool>(out, false);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      if (place.host) return put<unsigned long long>(out, place.host->id);
      [[fallthrough]];
    default:
      return place.mapping ? mapping_attribute(place, attribute, out) : CUDA_ERROR_INVALID_VALUE;
  }
}

u64 size_of(CUpointer_attribute attribute) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      return 4;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return 4;
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
      return 1;
    default:
      return 8;
  }
}

CUresult get(void* out, CUpointer_attribute attribute, CUdeviceptr address) {
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  const Place place = place_of(address);
  return place.known() ? attribute_of(place, attribute, address, out) : CUDA_ERROR_INVALID_VALUE;
}

// The plural form answers zeros for what an address does not have, and fails for bad arguments only.
CUresult get_all(unsigned count, const CUpointer_attribute* attributes, void** out, CUdeviceptr address) {
  if (!count || !attributes || !out) return CUDA_ERROR_INVALID_VALUE;
  const Place place = place_of(address);
  for (unsigned i = 0; i < count; i++) {
    if (!out[i]) return CUDA_ERROR_INVALID_VALUE;
    if (!place.known() || attribute_of(place, attributes[i], address, out[i]) != CUDA_SUCCESS)
      std::memset(out[i], attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL ? 0xff : 0,
                  size_of(attributes[i]));
  }
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace cudasim

using namespace cudasim;

extern "C" {

CUresult CUDAAPI cuPointerGetAttribute(void* out, CUpointer_attribute attribute, CUdeviceptr address) {
  CUDASIM_CALL(cuPointerGetAttribute, Needs::kDriver, attribute, address);
  return call.done(get(out, attribute, address));
}
CUresult CUDAAPI cuPointerGetAttributes(unsigned count, CUpointer_attribute* attributes, void** out,
                                        CUdeviceptr address) {
  CUDASIM_CALL(cuPointerGetAttributes, Needs::kDriver, count, address);
  return call.done(get_all(count, attributes, out, address));
}
CUresult CUDAAPI cuPointerSetAttribute(const void* value, CUpointer_attribute attribute,
                                       CUdeviceptr address) {
  CUDASIM_CALL(cuPointerSetAttribute, Needs::kDriver, attribute, address);
  const bool good = value && attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS && place_of(address).mapping;
  return call.done(good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

}  // extern "C"
