// The exported functions about stream-ordered memory and its pools. Pools cannot be shared between processes
// here.
#include "cudasim/driver/pool.hpp"
#include "cudasim/driver/process.hpp"
#include "cudasim/driver/submit.hpp"

namespace cudasim {
namespace {

CUresult allocate(CUdeviceptr* out, u64 bytes, CUmemoryPool handle, CUstream stream_handle, Default meaning) {
  if (Streams::inside_host_function()) return CUDA_ERROR_NOT_PERMITTED;
  std::shared_ptr<Stream> stream;
  const CUresult found = Streams::get().find(stream_handle, meaning, stream);
  if (found != CUDA_SUCCESS) return found;
  // Memory nodes of graphs are not simulated.
  const CUresult captured = Captures::get().refuse_captured(stream);
  if (captured != CUDA_SUCCESS) return captured;
  const auto pool =
      Pools::get().find(handle != nullptr ? handle : Pools::get().current_of(stream->context->device));
  return pool == nullptr ? CUDA_ERROR_INVALID_VALUE : pool->allocate(*stream->context, bytes, stream, out);
}

CUresult free(CUdeviceptr address, CUstream stream_handle, Default meaning) {
  if (Streams::inside_host_function()) return CUDA_ERROR_NOT_PERMITTED;
  std::shared_ptr<Stream> stream;
  const CUresult found = Streams::get().find(stream_handle, meaning, stream);
  if (found != CUDA_SUCCESS) return found;
  const CUresult captured = Captures::get().refuse_captured(stream);
  return captured != CUDA_SUCCESS ? captured : Pools::get().free_on(address, stream);
}

CUresult create(CUmemoryPool* out, const CUmemPoolProps* properties) {
  if (out == nullptr || properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (properties->allocType != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
  if (properties->handleTypes != CU_MEM_HANDLE_TYPE_NONE) return CUDA_ERROR_NOT_SUPPORTED;
  if (!known_device(properties->location.id)) return CUDA_ERROR_INVALID_DEVICE;
  *out = Pools::get().add(properties->location.id);
  return CUDA_SUCCESS;
}

// Runs `use` on the pool behind a handle.
template <typename Action>
CUresult with_pool(CUmemoryPool handle, Action use) {
  const auto pool = Pools::get().find(handle);
  return pool == nullptr ? CUDA_ERROR_INVALID_VALUE : use(*pool);
}

CUresult trim(CUmemoryPool handle, u64 keep) {
  return with_pool(handle, [keep](Pool& pool) {
    pool.trim(keep);
    return CUDA_SUCCESS;
  });
}

CUresult give_pool(CUmemoryPool* out, int device, CUmemoryPool (Pools::*which)(int)) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!known_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  *out = (Pools::get().*which)(device);
  return CUDA_SUCCESS;
}

// The 13.0 forms name a device by location and type.
CUresult device_of(const CUmemLocation* location, CUmemAllocationType type, int& device) {
  if (location == nullptr || type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  if (location->type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
  device = location->id;
  return CUDA_SUCCESS;
}

CUresult pool_at(CUmemoryPool* out, const CUmemLocation* location, CUmemAllocationType type,
                 CUmemoryPool (Pools::*which)(int)) {
  int device = 0;
  const CUresult result = device_of(location, type, device);
  return result != CUDA_SUCCESS ? result : give_pool(out, device, which);
}

CUresult set_pool(int device, CUmemoryPool pool) {
  if (!known_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  return Pools::get().set_current(device, pool);
}

CUresult set_access(CUmemoryPool handle, const CUmemAccessDesc* list, u64 count) {
  return with_pool(handle, [&](Pool& pool) {
    for (u64 i = 0; i < count; ++i) {
      if (list == nullptr || list[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
      // The pool's own device always reads and writes.
      if (list[i].location.id == pool.device() && list[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
        return CUDA_ERROR_INVALID_VALUE;
      }
    }
    return CUDA_SUCCESS;
  });
}

CUresult get_access(CUmemAccess_flags* flags, CUmemoryPool handle, const CUmemLocation* location) {
  if (flags == nullptr || location == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return with_pool(handle, [&](Pool& pool) {
    const bool own = location->type == CU_MEM_LOCATION_TYPE_DEVICE && location->id == pool.device();
    *flags = own ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
  });
}

}  // namespace
}  // namespace cudasim

using namespace cudasim;

extern "C" {

CUDASIM_BOTH(cuMemAllocAsync, _ptsz, (CUdeviceptr * out, size_t bytes, CUstream stream), (bytes, stream),
             allocate(out, bytes, nullptr, stream, meaning))
CUDASIM_BOTH(cuMemAllocFromPoolAsync, _ptsz,
             (CUdeviceptr * out, size_t bytes, CUmemoryPool pool, CUstream stream), (bytes, stream),
             pool == nullptr ? CUDA_ERROR_INVALID_VALUE : allocate(out, bytes, pool, stream, meaning))
CUDASIM_BOTH(cuMemFreeAsync, _ptsz, (CUdeviceptr address, CUstream stream), (address, stream),
             free(address, stream, meaning))

CUresult CUDAAPI cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* properties) {
  CUDASIM_CALL(cuMemPoolCreate, Needs::kDriver);
  return call.done(create(pool, properties));
}
CUresult CUDAAPI cuMemPoolDestroy(CUmemoryPool pool) {
  CUDASIM_CALL(cuMemPoolDestroy, Needs::kDriver, pool);
  return call.done(Pools::get().remove(pool));
}
CUresult CUDAAPI cuMemPoolTrimTo(CUmemoryPool pool, size_t keep) {
  CUDASIM_CALL(cuMemPoolTrimTo, Needs::kDriver, pool, keep);
  return call.done(trim(pool, keep));
}
CUresult CUDAAPI cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void* value) {
  CUDASIM_CALL(cuMemPoolSetAttribute, Needs::kDriver, pool, attribute);
  return call.done(with_pool(pool, [&](Pool& p) { return p.set(attribute, value); }));
}
CUresult CUDAAPI cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void* value) {
  CUDASIM_CALL(cuMemPoolGetAttribute, Needs::kDriver, pool, attribute);
  return call.done(with_pool(pool, [&](Pool& p) { return p.get(attribute, value); }));
}
CUresult CUDAAPI cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc* list, size_t count) {
  CUDASIM_CALL(cuMemPoolSetAccess, Needs::kDriver, pool, count);
  return call.done(set_access(pool, list, count));
}
CUresult CUDAAPI cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool pool, CUmemLocation* location) {
  CUDASIM_CALL(cuMemPoolGetAccess, Needs::kDriver, pool);
  return call.done(get_access(flags, pool, location));
}
CUresult CUDAAPI cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice device) {
  CUDASIM_CALL(cuDeviceGetDefaultMemPool, Needs::kDriver, device);
  return call.done(give_pool(pool, device, &Pools::default_of));
}
CUresult CUDAAPI cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice device) {
  CUDASIM_CALL(cuDeviceGetMemPool, Needs::kDriver, device);
  return call.done(give_pool(pool, device, &Pools::current_of));
}
CUresult CUDAAPI cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool) {
  CUDASIM_CALL(cuDeviceSetMemPool, Needs::kDriver, device, pool);
  return call.done(set_pool(device, pool));
}
CUresult CUDAAPI cuMemGetDefaultMemPool(CUmemoryPool* pool, CUmemLocation* location,
                                        CUmemAllocationType type) {
  CUDASIM_CALL(cuMemGetDefaultMemPool, Needs::kDriver);
  return call.done(pool_at(pool, location, type, &Pools::default_of));
}
CUresult CUDAAPI cuMemGetMemPool(CUmemoryPool* pool, CUmemLocation* location, CUmemAllocationType type) {
  CUDASIM_CALL(cuMemGetMemPool, Needs::kDriver);
  return call.done(pool_at(pool, location, type, &Pools::current_of));
}
CUresult CUDAAPI cuMemSetMemPool(CUmemLocation* location, CUmemAllocationType type, CUmemoryPool pool) {
  CUDASIM_CALL(cuMemSetMemPool, Needs::kDriver, pool);
  int device = 0;
  const CUresult result = device_of(location, type, device);
  return call.done(result != CUDA_SUCCESS ? result : set_pool(device, pool));
}

}  // extern "C"
