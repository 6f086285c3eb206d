// Kernels and host functions as pieces of work.
#include "cudasim/driver/launch.hpp"

#include <utility>

#include "cudasim/driver/access.hpp"
#include "cudasim/driver/module.hpp"
#include "cudasim/driver/submit.hpp"

namespace cudasim {
namespace {

struct Touch {
  Use use;
  std::optional<unsigned char> value;  // written when the kernel runs
};
struct Next {
  std::vector<Touch> touches;
  u64 duration_ns = kKernelNs;
};
thread_local Next next;

CUresult run(Context* context, const std::vector<Touch>& touches) {
  for (const auto& [use, value] : touches) {
    const CUresult result = value ? fill_device(context, use.address, *value, 1, use.bytes)
                                  : check_device(context, use.address, use.bytes, false);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

CUresult kernel(CUfunction function, bool empty, CUstream stream, Default meaning) {
  if (!is_function(function)) return CUDA_ERROR_INVALID_HANDLE;
  if (empty) return CUDA_ERROR_INVALID_VALUE;
  Context* context = current_context();
  const Next told = std::exchange(next, {});
  Work work{.what = "cuLaunchKernel", .duration_ns = told.duration_ns};
  for (const Touch& touch : told.touches)
    work.uses.push_back(touch.use);
  work.effect = [context, touches = told.touches] { return run(context, touches); };
  return submit(stream, meaning, std::move(work));
}

CUresult kernel(const CUlaunchConfig* config, CUfunction function, Default meaning) {
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const bool empty = config->gridDimX * config->gridDimY * config->gridDimZ == 0 ||
                     config->blockDimX * config->blockDimY * config->blockDimZ == 0;
  return kernel(function, empty, config->hStream, meaning);
}

CUresult host_function(CUstream stream, Default meaning, CUhostFn function, void* data) {
  if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return submit(stream, meaning,
                {.what = "cuLaunchHostFunc",
                 .effect =
                     [function, data] {
                       function(data);
                       return CUDA_SUCCESS;
                     },
                 .duration_ns = kQueryNs,
                 .host_function = true});
}

CUresult callback(CUstream stream, Default meaning, CUstreamCallback function, void* data, unsigned flags) {
  if (function == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return submit(stream, meaning,
                {.what = "cuStreamAddCallback",
                 .effect =
                     [stream, function, data] {
                       function(stream, CUDA_SUCCESS, data);
                       return CUDA_SUCCESS;
                     },
                 .duration_ns = kQueryNs,
                 .host_function = true});
}

}  // namespace
}  // namespace cudasim

using namespace cudasim;

extern "C" {

void cudasim_launch_uses(CUdeviceptr address, size_t bytes) {
  next.touches.push_back({{address, bytes}, {}});
}
void cudasim_launch_writes(CUdeviceptr address, size_t bytes, unsigned char value) {
  next.touches.push_back({{address, bytes}, value});
}
void cudasim_launch_takes(unsigned long long nanoseconds) {
  next.duration_ns = nanoseconds;
}

CUDASIM_BOTH(cuLaunchKernel, _ptsz,
             (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
              unsigned block_y, unsigned block_z, unsigned, CUstream stream, void**, void**),
             (function, stream),
             kernel(function, grid_x* grid_y* grid_z == 0 || block_x * block_y * block_z == 0, stream,
                    meaning))
CUDASIM_BOTH(cuLaunchCooperativeKernel, _ptsz,
             (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
              unsigned block_y, unsigned block_z, unsigned, CUstream stream, void**),
             (function, stream),
             kernel(function, grid_x* grid_y* grid_z == 0 || block_x * block_y * block_z == 0, stream,
                    meaning))
CUDASIM_BOTH(cuLaunchKernelEx, _ptsz, (const CUlaunchConfig* config, CUfunction function, void**, void**),
             (function), kernel(config, function, meaning))
CUDASIM_BOTH(cuLaunchHostFunc, _ptsz, (CUstream stream, CUhostFn function, void* data), (stream),
             host_function(stream, meaning, function, data))
CUDASIM_BOTH(cuStreamAddCallback, _ptsz,
             (CUstream stream, CUstreamCallback function, void* data, unsigned flags), (stream),
             callback(stream, meaning, function, data, flags))

}  // extern "C"
