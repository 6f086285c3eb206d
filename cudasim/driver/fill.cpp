// The exported memset functions. On device memory all of them return before the bytes are written (rule 31).
#include <cstring>

#include "cudasim/driver/access.hpp"
#include "cudasim/driver/codes.hpp"
#include "cudasim/driver/host_memory.hpp"
#include "cudasim/driver/process.hpp"
#include "cudasim/driver/submit.hpp"

namespace cudasim {
namespace {

struct Fill {
  const char* what;
  CUdeviceptr to;
  u32 value;
  u32 element;  // bytes: 1, 2 or 4
  u64 width;    // elements in a row
  u64 height = 1;
  u64 pitch = 0;
};

CUresult fill_host(const Fill& fill) {
  for (u64 y = 0; y < fill.height; ++y) {
    auto* row = reinterpret_cast<char*>(fill.to + y * fill.pitch);
    for (u64 x = 0; x < fill.width; ++x)
      std::memcpy(row + x * fill.element, &fill.value, fill.element);
  }
  return CUDA_SUCCESS;
}

CUresult fill_rows(Context* context, const Fill& fill) {
  for (u64 y = 0; y < fill.height; ++y) {
    const CUresult result =
        fill_device(context, fill.to + y * fill.pitch, fill.value, fill.element, fill.width);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

CUresult memset(const Fill& fill, CUstream stream, Default meaning, bool async) {
  if (fill.width == 0 || fill.height == 0) return CUDA_SUCCESS;
  if (fill.to % fill.element != 0) return CUDA_ERROR_INVALID_VALUE;
  const u64 row = fill.width * fill.element;
  if (fill.height > 1 && (fill.pitch < row || fill.pitch % fill.element != 0))
    return CUDA_ERROR_INVALID_VALUE;
  Context* context = current_context();
  Work work{.what = fill.what, .duration_ns = transfer_ns(row * fill.height), .fill = true};
  if (!is_device_address(fill.to)) {
    if (!find_host_memory(fill.to)) return codes::kUnknownPointer;
    work.effect = [fill] { return fill_host(fill); };
    return async ? submit(stream, meaning, std::move(work)) : submit_and_wait(meaning, std::move(work));
  }
  work.uses.push_back({fill.to, (fill.height - 1) * fill.pitch + row});
  work.effect = [context, fill] { return fill_rows(context, fill); };
  if (break_rule(31)) {
    const CUresult given = submit(stream, meaning, std::move(work));
    return given != CUDA_SUCCESS ? given : synchronise_stream(stream, meaning);
  }
  return submit(stream, meaning, std::move(work));
}

}  // namespace
}  // namespace cudasim

using namespace cudasim;

// Element type and size of the three widths, in every form.
#define CUDASIM_FILL(bits, type)                                                                           \
  CUDASIM_BOTH(cuMemsetD##bits##_v2, _ptds, (CUdeviceptr to, type value, size_t count), (to, count),       \
               memset({"cuMemsetD" #bits, to, value, bits / 8, count}, nullptr, meaning, false))           \
  CUDASIM_BOTH(cuMemsetD##bits##Async, _ptsz, (CUdeviceptr to, type value, size_t count, CUstream stream), \
               (to, count),                                                                                \
               memset({"cuMemsetD" #bits "Async", to, value, bits / 8, count}, stream, meaning, true))     \
  CUDASIM_BOTH(                                                                                            \
      cuMemsetD2D##bits##_v2, _ptds,                                                                       \
      (CUdeviceptr to, size_t pitch, type value, size_t width, size_t height), (to, width),                \
      memset({"cuMemsetD2D" #bits, to, value, bits / 8, width, height, pitch}, nullptr, meaning, false))   \
  CUDASIM_BOTH(cuMemsetD2D##bits##Async, _ptsz,                                                            \
               (CUdeviceptr to, size_t pitch, type value, size_t width, size_t height, CUstream stream),   \
               (to, width),                                                                                \
               memset({"cuMemsetD2D" #bits "Async", to, value, bits / 8, width, height, pitch}, stream,    \
                      meaning, true))

extern "C" {
CUDASIM_FILL(8, unsigned char)
CUDASIM_FILL(16, unsigned short)
CUDASIM_FILL(32, unsigned)
}  // extern "C"
