// Memory: allocate, free, copy, fill. Pitched, managed and array memory, symbols and pools of one's own are
// not here.
#include "cudasim/cudart/runtime.hpp"

using namespace cudasim::cudart;

namespace {

// Host addresses are addresses to the driver, so what a kind leaves open the driver sees itself.
CUresult copy(const Driver& driver, void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  if (kind == cudaMemcpyHostToDevice) return driver.cuMemcpyHtoD(address_of(to), from, bytes);
  if (kind == cudaMemcpyDeviceToHost) return driver.cuMemcpyDtoH(to, address_of(from), bytes);
  return driver.cuMemcpy(address_of(to), address_of(from), bytes);
}

CUresult copy_async(const Driver& driver, void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                    cudaStream_t stream) {
  if (kind == cudaMemcpyHostToDevice) return driver.cuMemcpyHtoDAsync(address_of(to), from, bytes, stream);
  if (kind == cudaMemcpyDeviceToHost) return driver.cuMemcpyDtoHAsync(to, address_of(from), bytes, stream);
  return driver.cuMemcpyAsync(address_of(to), address_of(from), bytes, stream);
}

bool is_kind(cudaMemcpyKind kind) {
  return kind >= cudaMemcpyHostToHost && kind <= cudaMemcpyDefault;
}

// Puts the driver's address where the program wants its pointer, on success alone. 0 bytes are no error:
// null.
template <typename Allocate>
CUresult allocate(void** pointer, size_t bytes, Allocate&& call) {
  if (pointer == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUdeviceptr address = 0;
  if (bytes != 0)
    if (const CUresult r = call(&address); r != CUDA_SUCCESS) return r;
  *pointer = reinterpret_cast<void*>(address);
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  return with_context([&](const Driver& driver) {
    return allocate(pointer, bytes, [&](CUdeviceptr* out) { return driver.cuMemAlloc(out, bytes); });
  });
}
cudaError_t cudaFree(void* pointer) {
  return with_context([&](const Driver& driver) {
    return pointer == nullptr ? CUDA_SUCCESS : driver.cuMemFree(address_of(pointer));
  });
}
cudaError_t cudaMallocAsync(void** pointer, size_t bytes, cudaStream_t stream) {
  return with_context([&](const Driver& driver) {
    return allocate(pointer, bytes,
                    [&](CUdeviceptr* out) { return driver.cuMemAllocAsync(out, bytes, stream); });
  });
}
cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream) {
  return with_context([&](const Driver& driver) {
    return pointer == nullptr ? CUDA_SUCCESS : driver.cuMemFreeAsync(address_of(pointer), stream);
  });
}

cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned flags) {
  return with_context([&](const Driver& driver) { return driver.cuMemHostAlloc(pointer, bytes, flags); });
}
cudaError_t cudaMallocHost(void** pointer, size_t bytes) {
  return cudaHostAlloc(pointer, bytes, cudaHostAllocDefault);
}
cudaError_t cudaFreeHost(void* pointer) {
  return with_context([&](const Driver& driver) {
    return pointer == nullptr ? CUDA_SUCCESS : driver.cuMemFreeHost(pointer);
  });
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  return with_context([&](const Driver& driver) { return driver.cuMemGetInfo(free, total); });
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  if (!is_kind(kind)) return noted(cudaErrorInvalidMemcpyDirection);
  return with_context([&](const Driver& driver) { return copy(driver, to, from, bytes, kind); });
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  if (!is_kind(kind)) return noted(cudaErrorInvalidMemcpyDirection);
  return with_context(
      [&](const Driver& driver) { return copy_async(driver, to, from, bytes, kind, stream); });
}

cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  return with_context([&](const Driver& driver) {
    return driver.cuMemsetD8(address_of(to), static_cast<unsigned char>(value), bytes);
  });
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  return with_context([&](const Driver& driver) {
    return driver.cuMemsetD8Async(address_of(to), static_cast<unsigned char>(value), bytes, stream);
  });
}

}  // extern "C"
