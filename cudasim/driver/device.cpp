// cuInit, the list of devices, and the calls that only describe.
#include <cstdio>
#include <cstring>

#include "cudasim/driver/call.hpp"
#include "cudasim/driver/device_attributes.hpp"

namespace cudasim {
namespace {

constexpr int kDriverVersion = 13000;

CUresult pci_bus_id(char* out, int length, CUdevice device) {
  if (!out || length < 13) return CUDA_ERROR_INVALID_VALUE;
  if (!known_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  std::snprintf(out, static_cast<size_t>(length), "0000:%02X:00.0", device_record(device).pci_bus);
  return CUDA_SUCCESS;
}

CUresult by_pci_bus_id(CUdevice* out, const char* text) {
  if (!out || !text) return CUDA_ERROR_INVALID_VALUE;
  unsigned domain = 0, bus = 0, slot = 0, function = 0;
  if (std::sscanf(text, "%x:%x:%x.%x", &domain, &bus, &slot, &function) < 3 &&
      std::sscanf(text, "%x:%x.%x", &bus, &slot, &function) < 2)
    return CUDA_ERROR_INVALID_VALUE;
  for (u32 i = 0; i < control().device_count; i++) {
    if (device_record(static_cast<int>(i)).pci_bus != bus || domain || slot || function) continue;
    *out = static_cast<CUdevice>(i);
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_DEVICE;
}

CUresult uuid_of(CUuuid* out, CUdevice device) {
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  if (!known_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  std::memcpy(out->bytes, device_record(device).uuid, sizeof out->bytes);
  return CUDA_SUCCESS;
}

CUresult peer(int* out, CUdevice device, CUdevice other) {
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  if (!known_device(device) || !known_device(other)) return CUDA_ERROR_INVALID_DEVICE;
  *out = 0;
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace cudasim

using namespace cudasim;

extern "C" {

// No name of the CUDA API: who looks it up learns that this is the simulator.
__attribute__((visibility("default"))) int cudasim_version() {
  return static_cast<int>(kLayoutVersion);
}

CUresult CUDAAPI cuInit(unsigned flags) {
  CUDASIM_CALL(cuInit, Needs::kNothing, flags);
  Process& process = Process::get();
  if (flags) return call.done(CUDA_ERROR_INVALID_VALUE);
  if (process.initialised() && process.forked_child() && !break_rule(37))
    return call.done(codes::kForkedChild);
  return call.done(process.initialise());
}
CUresult CUDAAPI cuDriverGetVersion(int* out) {
  CUDASIM_CALL(cuDriverGetVersion, Needs::kNothing);
  if (!out) return call.done(CUDA_ERROR_INVALID_VALUE);
  *out = kDriverVersion;
  return call.done(CUDA_SUCCESS);
}
CUresult CUDAAPI cuDeviceGetCount(int* out) {
  CUDASIM_CALL(cuDeviceGetCount, Needs::kInit);
  if (!out) return call.done(CUDA_ERROR_INVALID_VALUE);
  *out = static_cast<int>(control().device_count);
  return call.done(CUDA_SUCCESS);
}
CUresult CUDAAPI cuDeviceGet(CUdevice* out, int ordinal) {
  CUDASIM_CALL(cuDeviceGet, Needs::kInit, ordinal);
  if (!out) return call.done(CUDA_ERROR_INVALID_VALUE);
  if (!known_device(ordinal)) return call.done(CUDA_ERROR_INVALID_DEVICE);
  *out = ordinal;
  return call.done(CUDA_SUCCESS);
}
CUresult CUDAAPI cuDeviceGetName(char* out, int length, CUdevice device) {
  CUDASIM_CALL(cuDeviceGetName, Needs::kInit, device);
  if (!out || length <= 0) return call.done(CUDA_ERROR_INVALID_VALUE);
  if (!known_device(device)) return call.done(CUDA_ERROR_INVALID_DEVICE);
  std::snprintf(out, static_cast<size_t>(length), "%s", device_record(device).name);
  return call.done(CUDA_SUCCESS);
}
CUresult CUDAAPI cuDeviceGetUuid(CUuuid* out, CUdevice device) {
  CUDASIM_CALL(cuDeviceGetUuid, Needs::kInit, device);
  return call.done(uuid_of(out, device));
}
CUresult CUDAAPI cuDeviceGetUuid_v2(CUuuid* out, CUdevice device) {
  CUDASIM_CALL(cuDeviceGetUuid_v2, Needs::kInit, device);
  return call.done(uuid_of(out, device));
}
CUresult CUDAAPI cuDeviceTotalMem_v2(size_t* out, CUdevice device) {
  CUDASIM_CALL(cuDeviceTotalMem_v2, Needs::kInit, device);
  if (!out) return call.done(CUDA_ERROR_INVALID_VALUE);
  if (!known_device(device)) return call.done(CUDA_ERROR_INVALID_DEVICE);
  *out = device_record(device).total_bytes;
  return call.done(CUDA_SUCCESS);
}
CUresult CUDAAPI cuDeviceGetAttribute(int* out, CUdevice_attribute attribute, CUdevice device) {
  CUDASIM_CALL(cuDeviceGetAttribute, Needs::kInit, attribute, device);
  if (!out) return call.done(CUDA_ERROR_INVALID_VALUE);
  if (!known_device(device)) return call.done(CUDA_ERROR_INVALID_DEVICE);
  return call.done(device_attribute(device, attribute, *out) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}
CUresult CUDAAPI cuDeviceComputeCapability(int* major, int* minor, CUdevice device) {
  CUDASIM_CALL(cuDeviceComputeCapability, Needs::kInit, device);
  if (!major || !minor) return call.done(CUDA_ERROR_INVALID_VALUE);
  if (!known_device(device)) return call.done(CUDA_ERROR_INVALID_DEVICE);
  device_attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, *major);
  device_attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, *minor);
  return call.done(CUDA_SUCCESS);
}
CUresult CUDAAPI cuDeviceGetPCIBusId(char* out, int length, CUdevice device) {
  CUDASIM_CALL(cuDeviceGetPCIBusId, Needs::kInit, device);
  return call.done(pci_bus_id(out, length, device));
}
CUresult CUDAAPI cuDeviceGetByPCIBusId(CUdevice* out, const char* text) {
  CUDASIM_CALL(cuDeviceGetByPCIBusId, Needs::kInit);
  return call.done(by_pci_bus_id(out, text));
}
CUresult CUDAAPI cuDeviceCanAccessPeer(int* out, CUdevice device, CUdevice other) {
  CUDASIM_CALL(cuDeviceCanAccessPeer, Needs::kInit, device, other);
  return call.done(peer(out, device, other));
}
CUresult CUDAAPI cuDeviceGetP2PAttribute(int* out, CUdevice_P2PAttribute attribute, CUdevice device,
                                         CUdevice other) {
  CUDASIM_CALL(cuDeviceGetP2PAttribute, Needs::kInit, attribute);
  return call.done(peer(out, device, other));
}
CUresult CUDAAPI cuDeviceGetExecAffinitySupport(int* out, CUexecAffinityType type, CUdevice device) {
  CUDASIM_CALL(cuDeviceGetExecAffinitySupport, Needs::kInit, type, device);
  return call.done(peer(out, device, device));
}
CUresult CUDAAPI cuCtxEnablePeerAccess(CUcontext other, unsigned flags) {
  CUDASIM_CALL(cuCtxEnablePeerAccess, Needs::kContext, other, flags);
  return call.done(context_of(other) ? CUDA_ERROR_PEER_ACCESS_UNSUPPORTED : CUDA_ERROR_INVALID_CONTEXT);
}
CUresult CUDAAPI cuCtxDisablePeerAccess(CUcontext other) {
  CUDASIM_CALL(cuCtxDisablePeerAccess, Needs::kContext, other);
  return call.done(context_of(other) ? CUDA_ERROR_PEER_ACCESS_NOT_ENABLED : CUDA_ERROR_INVALID_CONTEXT);
}

CUresult CUDAAPI cuProfilerStart(void) {
  CUDASIM_CALL(cuProfilerStart, Needs::kContext);
  return call.done(CUDA_SUCCESS);
}
CUresult CUDAAPI cuProfilerStop(void) {
  CUDASIM_CALL(cuProfilerStop, Needs::kContext);
  return call.done(CUDA_SUCCESS);
}

}  // extern "C"
