// The exported copy functions. Arrays are not simulated: copies that name one are refused.
#include <optional>

#include "cudasim/driver/access.hpp"
#include "cudasim/driver/codes.hpp"
#include "cudasim/driver/transfer.hpp"

namespace cudasim {
namespace {

struct Linear {
  const char* what;
  CUdeviceptr to, from;
  u64 bytes;
  bool to_device, from_device;  // what the function's name promises
};

CUresult linear(const Linear& copy, CUstream stream, Default meaning, Wait wait) {
  if (copy.bytes == 0) return CUDA_SUCCESS;
  if ((copy.to_device && !is_device_address(copy.to)) || (copy.from_device && !is_device_address(copy.from)))
    return codes::kUnknownPointer;
  return transfer({.what = copy.what, .to = {copy.to}, .from = {copy.from}, .width = copy.bytes}, stream,
                  meaning, wait);
}

// The address that a copy descriptor means by type, host pointer and device pointer; nullopt for an array.
std::optional<CUdeviceptr> base_of(CUmemorytype type, const void* host, CUdeviceptr device) {
  switch (type) {
    case CU_MEMORYTYPE_HOST:
      return as_address(host);
    case CU_MEMORYTYPE_DEVICE:
    case CU_MEMORYTYPE_UNIFIED:
      return device;
    default:
      return std::nullopt;
  }
}

template <typename Descriptor>
CUresult plane(const char* what, const Descriptor* d, CUstream stream, Default meaning, Wait wait) {
  if (d == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto from = base_of(d->srcMemoryType, d->srcHost, d->srcDevice);
  const auto to = base_of(d->dstMemoryType, d->dstHost, d->dstDevice);
  if (!from || !to) return CUDA_ERROR_NOT_SUPPORTED;
  const u64 from_pitch = d->srcPitch != 0 ? d->srcPitch : d->WidthInBytes;
  const u64 to_pitch = d->dstPitch != 0 ? d->dstPitch : d->WidthInBytes;
  Transfer copy{.what = what, .width = d->WidthInBytes, .height = d->Height};
  copy.from = {*from + d->srcY * from_pitch + d->srcXInBytes, from_pitch};
  copy.to = {*to + d->dstY * to_pitch + d->dstXInBytes, to_pitch};
  if constexpr (requires { d->Depth; }) {
    copy.depth = d->Depth;
    copy.from.slice = from_pitch * (d->srcHeight != 0 ? d->srcHeight : d->Height);
    copy.to.slice = to_pitch * (d->dstHeight != 0 ? d->dstHeight : d->Height);
    copy.from.address += d->srcZ * copy.from.slice;
    copy.to.address += d->dstZ * copy.to.slice;
  }
  return transfer(copy, stream, meaning, wait);
}

}  // namespace
}  // namespace cudasim

using namespace cudasim;

extern "C" {

CUDASIM_BOTH(cuMemcpy, _ptds, (CUdeviceptr to, CUdeviceptr from, size_t bytes), (to, bytes),
             linear({"cuMemcpy", to, from, bytes, false, false}, nullptr, meaning, Wait::kYes))
CUDASIM_BOTH(cuMemcpyAsync, _ptsz, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream),
             (to, bytes),
             linear({"cuMemcpyAsync", to, from, bytes, false, false}, stream, meaning, Wait::kNo))
CUDASIM_BOTH(cuMemcpyHtoD_v2, _ptds, (CUdeviceptr to, const void* from, size_t bytes), (to, bytes),
             linear({"cuMemcpyHtoD", to, as_address(from), bytes, true, false}, nullptr, meaning, Wait::kYes))
CUDASIM_BOTH(cuMemcpyHtoDAsync_v2, _ptsz, (CUdeviceptr to, const void* from, size_t bytes, CUstream stream),
             (to, bytes),
             linear({"cuMemcpyHtoDAsync", to, as_address(from), bytes, true, false}, stream, meaning,
                    Wait::kNo))
CUDASIM_BOTH(cuMemcpyDtoH_v2, _ptds, (void* to, CUdeviceptr from, size_t bytes), (from, bytes),
             linear({"cuMemcpyDtoH", as_address(to), from, bytes, false, true}, nullptr, meaning, Wait::kYes))
CUDASIM_BOTH(cuMemcpyDtoHAsync_v2, _ptsz, (void* to, CUdeviceptr from, size_t bytes, CUstream stream),
             (from, bytes),
             linear({"cuMemcpyDtoHAsync", as_address(to), from, bytes, false, true}, stream, meaning,
                    Wait::kNo))
CUDASIM_BOTH(cuMemcpyDtoD_v2, _ptds, (CUdeviceptr to, CUdeviceptr from, size_t bytes), (to, bytes),
             linear({"cuMemcpyDtoD", to, from, bytes, true, true}, nullptr, meaning, Wait::kYes))
CUDASIM_BOTH(cuMemcpyDtoDAsync_v2, _ptsz, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream),
             (to, bytes),
             linear({"cuMemcpyDtoDAsync", to, from, bytes, true, true}, stream, meaning, Wait::kNo))
// Both contexts see the same address space, so a copy between devices is one between addresses.
CUDASIM_BOTH(cuMemcpyPeer, _ptds, (CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, size_t bytes),
             (to, bytes), linear({"cuMemcpyPeer", to, from, bytes, true, true}, nullptr, meaning, Wait::kYes))
CUDASIM_BOTH(cuMemcpyPeerAsync, _ptsz,
             (CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, size_t bytes, CUstream stream),
             (to, bytes),
             linear({"cuMemcpyPeerAsync", to, from, bytes, true, true}, stream, meaning, Wait::kNo))

CUDASIM_BOTH(cuMemcpy2D_v2, _ptds, (const CUDA_MEMCPY2D* copy), (),
             plane("cuMemcpy2D", copy, nullptr, meaning, Wait::kYes))
CUDASIM_BOTH(cuMemcpy2DUnaligned_v2, _ptds, (const CUDA_MEMCPY2D* copy), (),
             plane("cuMemcpy2DUnaligned", copy, nullptr, meaning, Wait::kYes))
CUDASIM_BOTH(cuMemcpy2DAsync_v2, _ptsz, (const CUDA_MEMCPY2D* copy, CUstream stream), (),
             plane("cuMemcpy2DAsync", copy, stream, meaning, Wait::kNo))
CUDASIM_BOTH(cuMemcpy3D_v2, _ptds, (const CUDA_MEMCPY3D* copy), (),
             plane("cuMemcpy3D", copy, nullptr, meaning, Wait::kYes))
CUDASIM_BOTH(cuMemcpy3DAsync_v2, _ptsz, (const CUDA_MEMCPY3D* copy, CUstream stream), (),
             plane("cuMemcpy3DAsync", copy, stream, meaning, Wait::kNo))

}  // extern "C"
