#include "cudasim/driver/context.hpp"

#include <memory>
#include <mutex>
#include <vector>

#include "cudasim/driver/call.hpp"
#include "cudasim/driver/hooks.hpp"
#include "cudasim/driver/linear.hpp"

namespace cudasim {
namespace {

struct Contexts {
  std::mutex mutex;
  std::vector<std::unique_ptr<Context>> all;  // never shrinks: stale handles stay recognisable
  Context* primary[kMaxDevices] = {};
};
Contexts& contexts() {
  static auto* table = new Contexts;
  return *table;
}
thread_local std::vector<Context*> stack;

bool known_device(CUdevice device) {
  return device >= 0 && static_cast<u32>(device) < control().device_count;
}

// A context costs device memory; a full device has no room for one.
bool charge(Context& context) {
  DeviceRecord& device = device_record(context.device);
  Folder::Lock lock(folder());
  auto fits = [&] {
    return device.used_bytes + device.stranger_bytes + device.context_bytes <= device.total_bytes;
  };
  if (!fits()) settle_locked(folder(), Census::kExact);
  if (!fits()) return false;
  context.charged_bytes = device.context_bytes;
  Process::get().record().context_bytes[context.device] += context.charged_bytes;
  device.used_bytes += context.charged_bytes;
  return true;
}

CUresult start(Context& context, unsigned flags) {
  if (!charge(context)) return CUDA_ERROR_OUT_OF_MEMORY;
  static std::atomic<u64> ids{1};
  context.id = ids++;
  context.flags = flags;
  context.sticky = 0;
  context.alive = true;
  return CUDA_SUCCESS;
}

void end(Context& context) {
  if (!context.alive) return;
  if (hooks().context_gone) hooks().context_gone(context);
  linear_context_gone(context);
  context.alive = false;
  Folder::Lock lock(folder());
  Process::get().record().context_bytes[context.device] -= context.charged_bytes;
  device_record(context.device).used_bytes -= context.charged_bytes;
  context.charged_bytes = 0;
}

Context* add_context(int device, bool primary) {
  contexts().all.push_back(std::make_unique<Context>());
  Context* context = contexts().all.back().get();
  context->device = device;
  context->primary = primary;
  return context;
}

CUresult create(CUcontext* out, unsigned flags, CUdevice device) {
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  if (!known_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  if (device_record(device).lost) return codes::kDeviceLost;
  std::lock_guard guard(contexts().mutex);
  Context* context = add_context(device, false);
  const CUresult result = start(*context, flags);
  if (result != CUDA_SUCCESS) return result;
  stack.push_back(context);
  *out = handle_of(context);
  return CUDA_SUCCESS;
}

CUresult destroy(CUcontext handle) {
  Context* context = context_of(handle);
  if (!context) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard guard(contexts().mutex);
  if (context->primary || !context->alive) return CUDA_ERROR_INVALID_CONTEXT;
  end(*context);
  if (!stack.empty() && stack.back() == context) stack.pop_back();
  return CUDA_SUCCESS;
}

CUresult retain_primary(CUcontext* out, CUdevice device) {
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  if (!known_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  if (device_record(device).lost) return codes::kDeviceLost;
  std::lock_guard guard(contexts().mutex);
  Context*& primary = contexts().primary[device];
  if (!primary) primary = add_context(device, true);
  if (!primary->alive) {
    const CUresult result = start(*primary, primary->flags);
    if (result != CUDA_SUCCESS) return result;
  }
  primary->users++;
  *out = handle_of(primary);
  return CUDA_SUCCESS;
}

CUresult release_primary(CUdevice device, bool reset) {
  if (!known_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  std::lock_guard guard(contexts().mutex);
  Context* primary = contexts().primary[device];
  if (reset) {
    if (primary && primary->alive) {
      const int users = primary->users;
      end(*primary);
      if (users > 0) return start(*primary, primary->flags);  // a reset primary context is made again
    }
    return CUDA_SUCCESS;
  }
  if (!primary || primary->users == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (--primary->users == 0) end(*primary);
  return CUDA_SUCCESS;
}

CUresult pop(CUcontext* out) {
  if (stack.empty() || !stack.back()) return CUDA_ERROR_INVALID_CONTEXT;
  if (out) *out = handle_of(stack.back());
  stack.pop_back();
  return CUDA_SUCCESS;
}

CUresult push(CUcontext handle) {
  Context* context = context_of(handle);
  if (!context) return CUDA_ERROR_INVALID_VALUE;
  if (!context->alive) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  stack.push_back(context);
  return CUDA_SUCCESS;
}

CUresult set_current(CUcontext handle) {
  if (!handle) {
    if (!stack.empty()) stack.pop_back();
    return CUDA_SUCCESS;
  }
  Context* context = context_of(handle);
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  if (!context->alive) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (stack.empty())
    stack.push_back(context);
  else
    stack.back() = context;
  return CUDA_SUCCESS;
}

CUresult synchronise(Context& context) {
  const CUresult result = hooks().synchronise ? hooks().synchronise(context) : CUDA_SUCCESS;
  return context.sticky ? static_cast<CUresult>(context.sticky.load()) : result;
}

}  // namespace

Context* context_of(CUcontext handle) {
  std::lock_guard guard(contexts().mutex);
  for (const auto& context : contexts().all)
    if (handle_of(context.get()) == handle) return context.get();
  return nullptr;
}

Context* current_context() {
  return stack.empty() ? nullptr : stack.back();
}

CUresult make_sticky(Context* context, CUresult code) {
  int none = 0;
  if (context && !break_rule(19)) context->sticky.compare_exchange_strong(none, code);
  return code;
}

}  // namespace cudasim

using namespace cudasim;

extern "C" {

CUresult CUDAAPI cuCtxCreate(CUcontext* out, unsigned flags, CUdevice device) {
  CUDASIM_CALL(cuCtxCreate, Needs::kInit, flags, device);
  return call.done(create(out, flags, device));
}
CUresult CUDAAPI cuCtxCreate_v2(CUcontext* out, unsigned flags, CUdevice device) {
  CUDASIM_CALL(cuCtxCreate_v2, Needs::kInit, flags, device);
  return call.done(create(out, flags, device));
}
CUresult CUDAAPI cuCtxCreate_v3(CUcontext* out, CUexecAffinityParam* affinity, int count, unsigned flags,
                                CUdevice device) {
  CUDASIM_CALL(cuCtxCreate_v3, Needs::kInit, flags, device);
  if (affinity || count) return call.done(CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
  return call.done(create(out, flags, device));
}
CUresult CUDAAPI cuCtxCreate_v4(CUcontext* out, CUctxCreateParams* parameters, unsigned flags,
                                CUdevice device) {
  CUDASIM_CALL(cuCtxCreate_v4, Needs::kInit, flags, device);
  if (parameters && parameters->numExecAffinityParams) return call.done(CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
  return call.done(create(out, flags, device));
}

CUresult CUDAAPI cuCtxDestroy(CUcontext context) {
  CUDASIM_CALL(cuCtxDestroy, Needs::kInit, context);
  return call.done(destroy(context));
}
CUresult CUDAAPI cuCtxDestroy_v2(CUcontext context) {
  CUDASIM_CALL(cuCtxDestroy_v2, Needs::kInit, context);
  return call.done(destroy(context));
}
CUresult CUDAAPI cuCtxPushCurrent(CUcontext context) {
  CUDASIM_CALL(cuCtxPushCurrent, Needs::kInit, context);
  return call.done(push(context));
}
CUresult CUDAAPI cuCtxPushCurrent_v2(CUcontext context) {
  CUDASIM_CALL(cuCtxPushCurrent_v2, Needs::kInit, context);
  return call.done(push(context));
}
CUresult CUDAAPI cuCtxPopCurrent(CUcontext* out) {
  CUDASIM_CALL(cuCtxPopCurrent, Needs::kInit);
  return call.done(pop(out));
}
CUresult CUDAAPI cuCtxPopCurrent_v2(CUcontext* out) {
  CUDASIM_CALL(cuCtxPopCurrent_v2, Needs::kInit);
  return call.done(pop(out));
}
CUresult CUDAAPI cuCtxSetCurrent(CUcontext context) {
  CUDASIM_CALL(cuCtxSetCurrent, Needs::kInit, context);
  return call.done(set_current(context));
}
CUresult CUDAAPI cuCtxGetCurrent(CUcontext* out) {
  CUDASIM_CALL(cuCtxGetCurrent, Needs::kInit);
  if (!out) return call.done(CUDA_ERROR_INVALID_VALUE);
  *out = handle_of(current_context());
  return call.done(CUDA_SUCCESS);
}
CUresult CUDAAPI cuCtxGetDevice(CUdevice* out) {
  CUDASIM_CALL(cuCtxGetDevice, Needs::kInit);
  if (!out) return call.done(CUDA_ERROR_INVALID_VALUE);
  if (!current_context()) return call.done(CUDA_ERROR_INVALID_CONTEXT);
  *out = current_context()->device;
  return call.done(CUDA_SUCCESS);
}
CUresult CUDAAPI cuCtxGetDevice_v2(CUdevice* out, CUcontext handle) {
  CUDASIM_CALL(cuCtxGetDevice_v2, Needs::kInit, handle);
  Context* context = handle ? context_of(handle) : current_context();
  if (!out) return call.done(CUDA_ERROR_INVALID_VALUE);
  if (!context) return call.done(CUDA_ERROR_INVALID_CONTEXT);
  *out = context->device;
  return call.done(CUDA_SUCCESS);
}
CUresult CUDAAPI cuCtxGetFlags(unsigned* out) {
  CUDASIM_CALL(cuCtxGetFlags, Needs::kInit);
  if (!out) return call.done(CUDA_ERROR_INVALID_VALUE);
  if (!current_context()) return call.done(CUDA_ERROR_INVALID_CONTEXT);
  *out = current_context()->flags;
  return call.done(CUDA_SUCCESS);
}
CUresult CUDAAPI cuCtxSetFlags(unsigned flags) {
  CUDASIM_CALL(cuCtxSetFlags, Needs::kContext, flags);
  current_context()->flags = flags;
  return call.done(CUDA_SUCCESS);
}
CUresult CUDAAPI cuCtxGetId(CUcontext handle, unsigned long long* out) {
  CUDASIM_CALL(cuCtxGetId, Needs::kInit, handle);
  Context* context = handle ? context_of(handle) : current_context();
  if (!out) return call.done(CUDA_ERROR_INVALID_VALUE);
  if (!context) return call.done(CUDA_ERROR_INVALID_CONTEXT);
  if (!context->alive) return call.done(CUDA_ERROR_CONTEXT_IS_DESTROYED);
  *out = context->id;
  return call.done(CUDA_SUCCESS);
}
CUresult CUDAAPI cuCtxGetApiVersion(CUcontext handle, unsigned* out) {
  CUDASIM_CALL(cuCtxGetApiVersion, Needs::kInit, handle);
  Context* context = handle ? context_of(handle) : current_context();
  if (!out) return call.done(CUDA_ERROR_INVALID_VALUE);
  if (!context || !context->alive) return call.done(CUDA_ERROR_INVALID_CONTEXT);
  *out = 3020;
  return call.done(CUDA_SUCCESS);
}
CUresult CUDAAPI cuCtxSynchronize(void) {
  CUDASIM_CALL(cuCtxSynchronize, Needs::kContext);
  return call.done(synchronise(*current_context()));
}
CUresult CUDAAPI cuCtxSynchronize_v2(CUcontext handle) {
  CUDASIM_CALL(cuCtxSynchronize_v2, Needs::kInit, handle);
  Context* context = handle ? context_of(handle) : current_context();
  if (!context) return call.done(CUDA_ERROR_INVALID_CONTEXT);
  if (!context->alive) return call.done(CUDA_ERROR_CONTEXT_IS_DESTROYED);
  return call.done(synchronise(*context));
}
CUresult CUDAAPI cuCtxAttach(CUcontext* out, unsigned flags) {
  CUDASIM_CALL(cuCtxAttach, Needs::kContext, flags);
  if (!out || flags) return call.done(CUDA_ERROR_INVALID_VALUE);
  *out = handle_of(current_context());
  return call.done(CUDA_SUCCESS);
}
CUresult CUDAAPI cuCtxDetach(CUcontext context) {
  CUDASIM_CALL(cuCtxDetach, Needs::kInit, context);
  return call.done(context_of(context) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT);
}

CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext* out, CUdevice device) {
  CUDASIM_CALL(cuDevicePrimaryCtxRetain, Needs::kInit, device);
  return call.done(retain_primary(out, device));
}
CUresult CUDAAPI cuDevicePrimaryCtxRelease(CUdevice device) {
  CUDASIM_CALL(cuDevicePrimaryCtxRelease, Needs::kInit, device);
  return call.done(release_primary(device, false));
}
CUresult CUDAAPI cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  CUDASIM_CALL(cuDevicePrimaryCtxRelease_v2, Needs::kInit, device);
  return call.done(release_primary(device, false));
}
CUresult CUDAAPI cuDevicePrimaryCtxReset(CUdevice device) {
  CUDASIM_CALL(cuDevicePrimaryCtxReset, Needs::kInit, device);
  return call.done(release_primary(device, true));
}
CUresult CUDAAPI cuDevicePrimaryCtxReset_v2(CUdevice device) {
  CUDASIM_CALL(cuDevicePrimaryCtxReset_v2, Needs::kInit, device);
  return call.done(release_primary(device, true));
}

static CUresult set_primary_flags(CUdevice device, unsigned flags) {
  if (!known_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  std::lock_guard guard(contexts().mutex);
  Context*& primary = contexts().primary[device];
  if (!primary) primary = add_context(device, true);
  primary->flags = flags;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned flags) {
  CUDASIM_CALL(cuDevicePrimaryCtxSetFlags, Needs::kInit, device, flags);
  return call.done(set_primary_flags(device, flags));
}
CUresult CUDAAPI cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags) {
  CUDASIM_CALL(cuDevicePrimaryCtxSetFlags_v2, Needs::kInit, device, flags);
  return call.done(set_primary_flags(device, flags));
}
CUresult CUDAAPI cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
  CUDASIM_CALL(cuDevicePrimaryCtxGetState, Needs::kInit, device);
  if (!flags || !active) return call.done(CUDA_ERROR_INVALID_VALUE);
  if (!known_device(device)) return call.done(CUDA_ERROR_INVALID_DEVICE);
  std::lock_guard guard(contexts().mutex);
  const Context* primary = contexts().primary[device];
  *flags = primary ? primary->flags : 0;
  *active = primary && primary->alive;
  return call.done(CUDA_SUCCESS);
}

}  // extern "C"
