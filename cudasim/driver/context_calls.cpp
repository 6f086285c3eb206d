// The context functions of the driver API, in all their versions.
#include "cudasim/driver/call.hpp"
#include "cudasim/driver/context_table.hpp"

using namespace cudasim;

namespace {
constexpr unsigned kContextApiVersion =
    3020;  // CUDA 3.2, the last change of the context API: cuda.h's _v2 names
}

extern "C" {

CUresult CUDAAPI cuCtxCreate(CUcontext* out, unsigned flags, CUdevice device) {
  CUDASIM_CALL(cuCtxCreate, Needs::kInit, flags, device);
  return call.done(create_context(out, flags, device));
}
CUresult CUDAAPI cuCtxCreate_v2(CUcontext* out, unsigned flags, CUdevice device) {
  CUDASIM_CALL(cuCtxCreate_v2, Needs::kInit, flags, device);
  return call.done(create_context(out, flags, device));
}
CUresult CUDAAPI cuCtxCreate_v3(CUcontext* out, CUexecAffinityParam* affinity, int count, unsigned flags,
                                CUdevice device) {
  CUDASIM_CALL(cuCtxCreate_v3, Needs::kInit, flags, device);
  if (affinity || count) return call.done(CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
  return call.done(create_context(out, flags, device));
}
CUresult CUDAAPI cuCtxCreate_v4(CUcontext* out, CUctxCreateParams* parameters, unsigned flags,
                                CUdevice device) {
  CUDASIM_CALL(cuCtxCreate_v4, Needs::kInit, flags, device);
  if (parameters && parameters->numExecAffinityParams) return call.done(CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
  return call.done(create_context(out, flags, device));
}

CUresult CUDAAPI cuCtxDestroy(CUcontext context) {
  CUDASIM_CALL(cuCtxDestroy, Needs::kInit, context);
  return call.done(destroy_context(context));
}
CUresult CUDAAPI cuCtxDestroy_v2(CUcontext context) {
  CUDASIM_CALL(cuCtxDestroy_v2, Needs::kInit, context);
  return call.done(destroy_context(context));
}
CUresult CUDAAPI cuCtxPushCurrent(CUcontext context) {
  CUDASIM_CALL(cuCtxPushCurrent, Needs::kInit, context);
  return call.done(push_context(context));
}
CUresult CUDAAPI cuCtxPushCurrent_v2(CUcontext context) {
  CUDASIM_CALL(cuCtxPushCurrent_v2, Needs::kInit, context);
  return call.done(push_context(context));
}
CUresult CUDAAPI cuCtxPopCurrent(CUcontext* out) {
  CUDASIM_CALL(cuCtxPopCurrent, Needs::kInit);
  return call.done(pop_context(out));
}
CUresult CUDAAPI cuCtxPopCurrent_v2(CUcontext* out) {
  CUDASIM_CALL(cuCtxPopCurrent_v2, Needs::kInit);
  return call.done(pop_context(out));
}
CUresult CUDAAPI cuCtxSetCurrent(CUcontext context) {
  CUDASIM_CALL(cuCtxSetCurrent, Needs::kInit, context);
  return call.done(set_current_context(context));
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
  *out = kContextApiVersion;
  return call.done(CUDA_SUCCESS);
}
CUresult CUDAAPI cuCtxSynchronize(void) {
  CUDASIM_CALL(cuCtxSynchronize, Needs::kContext);
  return call.done(wait_for_context(*current_context()));
}
CUresult CUDAAPI cuCtxSynchronize_v2(CUcontext handle) {
  CUDASIM_CALL(cuCtxSynchronize_v2, Needs::kInit, handle);
  Context* context = handle ? context_of(handle) : current_context();
  if (!context) return call.done(CUDA_ERROR_INVALID_CONTEXT);
  if (!context->alive) return call.done(CUDA_ERROR_CONTEXT_IS_DESTROYED);
  return call.done(wait_for_context(*context));
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
  return call.done(primary_state(device, flags, active));
}

}  // extern "C"
