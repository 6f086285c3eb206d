// Limits and preferences of a context. They are kept and given back; nothing in the simulator depends on
// them.
#include <map>
#include <mutex>

#include "cudasim/driver/call.hpp"

namespace cudasim {
namespace {

struct Settings {
  std::map<int, size_t> limits{{CU_LIMIT_STACK_SIZE, 1024},
                               {CU_LIMIT_PRINTF_FIFO_SIZE, 1 << 20},
                               {CU_LIMIT_MALLOC_HEAP_SIZE, 8 << 20},
                               {CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH, 2},
                               {CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT, 2048},
                               {CU_LIMIT_MAX_L2_FETCH_GRANULARITY, 64},
                               {CU_LIMIT_PERSISTING_L2_CACHE_SIZE, 0}};
  CUfunc_cache cache = CU_FUNC_CACHE_PREFER_NONE;
  CUsharedconfig banks = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;
};

constexpr int kGreatestPriority = -5;  // lower is more urgent; as devices of compute capability 8.0 answer

std::mutex mutex;

// By the context's id: a primary context that was reset starts with fresh ones.
Settings& settings() {
  static auto* all = new std::map<u64, Settings>;
  return (*all)[current_context()->id];
}

CUresult get_limit(size_t* out, CUlimit limit) {
  std::lock_guard guard(mutex);
  auto found = settings().limits.find(limit);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  if (found == settings().limits.end()) return CUDA_ERROR_UNSUPPORTED_LIMIT;
  *out = found->second;
  return CUDA_SUCCESS;
}

CUresult set_limit(CUlimit limit, size_t value) {
  std::lock_guard guard(mutex);
  auto found = settings().limits.find(limit);
  if (found == settings().limits.end()) return CUDA_ERROR_UNSUPPORTED_LIMIT;
  found->second = value;
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace cudasim

using namespace cudasim;

extern "C" {

CUresult CUDAAPI cuCtxGetLimit(size_t* out, CUlimit limit) {
  CUDASIM_CALL(cuCtxGetLimit, Needs::kContext, limit);
  return call.done(get_limit(out, limit));
}
CUresult CUDAAPI cuCtxSetLimit(CUlimit limit, size_t value) {
  CUDASIM_CALL(cuCtxSetLimit, Needs::kContext, limit, value);
  return call.done(set_limit(limit, value));
}
CUresult CUDAAPI cuCtxGetCacheConfig(CUfunc_cache* out) {
  CUDASIM_CALL(cuCtxGetCacheConfig, Needs::kContext);
  if (!out) return call.done(CUDA_ERROR_INVALID_VALUE);
  std::lock_guard guard(mutex);
  *out = settings().cache;
  return call.done(CUDA_SUCCESS);
}
CUresult CUDAAPI cuCtxSetCacheConfig(CUfunc_cache config) {
  CUDASIM_CALL(cuCtxSetCacheConfig, Needs::kContext, config);
  std::lock_guard guard(mutex);
  settings().cache = config;
  return call.done(CUDA_SUCCESS);
}
CUresult CUDAAPI cuCtxGetSharedMemConfig(CUsharedconfig* out) {
  CUDASIM_CALL(cuCtxGetSharedMemConfig, Needs::kContext);
  if (!out) return call.done(CUDA_ERROR_INVALID_VALUE);
  std::lock_guard guard(mutex);
  *out = settings().banks;
  return call.done(CUDA_SUCCESS);
}
CUresult CUDAAPI cuCtxSetSharedMemConfig(CUsharedconfig config) {
  CUDASIM_CALL(cuCtxSetSharedMemConfig, Needs::kContext, config);
  std::lock_guard guard(mutex);
  settings().banks = config;
  return call.done(CUDA_SUCCESS);
}
CUresult CUDAAPI cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  CUDASIM_CALL(cuCtxGetStreamPriorityRange, Needs::kContext);
  if (least) *least = 0;
  if (greatest) *greatest = kGreatestPriority;
  return call.done(CUDA_SUCCESS);
}
CUresult CUDAAPI cuCtxResetPersistingL2Cache(void) {
  CUDASIM_CALL(cuCtxResetPersistingL2Cache, Needs::kContext);
  return call.done(CUDA_SUCCESS);
}

}  // extern "C"
