// NVML's life cycle, and who the devices are: handles, names, UUIDs, PCI addresses, modes.
#include <strings.h>

#include <cstdio>
#include <cstring>

#include "cudasim/nvml/call.hpp"
#include "cudasim/nvml/source.hpp"
#include "cudasim/nvml/state.hpp"

namespace {

using namespace cudasim::nvml;

constexpr const char* kDriverVersion = "580.00";
constexpr int kCudaVersion = 13000;
constexpr unsigned kDeviceId = 0x20B010DE;  // as an A100's: programs read architecture from it

void bus_id(const Facts& facts, const char* format, char* out, std::size_t size) {
  std::snprintf(out, size, format, facts.pci_domain, facts.pci_bus, facts.pci_device);
}

// "domain:bus:device.function", or "bus:device.function" with domain 0, in hexadecimal of any width.
bool parse_bus_id(const char* text, unsigned& domain, unsigned& bus, unsigned& device) {
  unsigned function = 0;
  int end = 0;
  const int length = static_cast<int>(std::strlen(text));
  if (std::sscanf(text, "%x:%x:%x.%x%n", &domain, &bus, &device, &function, &end) == 4 && end == length)
    return true;
  domain = 0;
  return std::sscanf(text, "%x:%x.%x%n", &bus, &device, &function, &end) == 3 && end == length;
}

Return give_mode(const Device* device, unsigned* out, unsigned value) {
  const Found found = device_of(device);
  if (found.result != kSuccess) return found.result;
  if (out == nullptr) return kInvalidArgument;
  *out = value;
  return kSuccess;
}

}  // namespace

CUDASIM_NVML Return nvmlInit_v2() {
  return start();
}
CUDASIM_NVML Return nvmlInit() {
  return start();
}
CUDASIM_NVML Return nvmlInitWithFlags(unsigned) {
  return start();
}
CUDASIM_NVML Return nvmlShutdown() {
  return stop();
}

CUDASIM_NVML const char* nvmlErrorString(int result) {
  switch (result) {
    case kSuccess:
      return "Success";
    case kUninitialized:
      return "Uninitialized";
    case kInvalidArgument:
      return "Invalid Argument";
    case kNotSupported:
      return "Not Supported";
    case kNotFound:
      return "Not Found";
    case kInsufficientSize:
      return "Insufficient Size";
    case kDriverNotLoaded:
      return "Driver Not Loaded";
    case kGpuIsLost:
      return "GPU is lost";
    case kArgumentVersionMismatch:
      return "Argument version mismatch";
    default:
      return "Unknown Error";
  }
}

CUDASIM_NVML Return nvmlSystemGetDriverVersion(char* text, unsigned length) {
  return started() ? copy_text(kDriverVersion, text, length) : kUninitialized;
}
CUDASIM_NVML Return nvmlSystemGetNVMLVersion(char* text, unsigned length) {
  return copy_text("13.580.00", text, length);
}
CUDASIM_NVML Return nvmlSystemGetCudaDriverVersion(int* version) {
  if (version == nullptr) return kInvalidArgument;
  *version = kCudaVersion;
  return kSuccess;
}
CUDASIM_NVML Return nvmlSystemGetCudaDriverVersion_v2(int* version) {
  return nvmlSystemGetCudaDriverVersion(version);
}

CUDASIM_NVML Return nvmlDeviceGetCount_v2(unsigned* count) {
  if (!started()) return kUninitialized;
  if (count == nullptr) return kInvalidArgument;
  *count = static_cast<unsigned>(device_count());
  return kSuccess;
}
CUDASIM_NVML Return nvmlDeviceGetCount(unsigned* count) {
  return nvmlDeviceGetCount_v2(count);
}

CUDASIM_NVML Return nvmlDeviceGetHandleByIndex_v2(unsigned index, Device** device) {
  if (!started()) return kUninitialized;
  if (device == nullptr || index >= device_count()) return kInvalidArgument;
  *device = handle_of(index);
  return kSuccess;
}
CUDASIM_NVML Return nvmlDeviceGetHandleByIndex(unsigned index, Device** device) {
  return nvmlDeviceGetHandleByIndex_v2(index, device);
}

CUDASIM_NVML Return nvmlDeviceGetHandleByUUID(const char* uuid, Device** device) {
  if (const Return result = enter("nvmlDeviceGetHandleByUUID"); result != kSuccess) return result;
  if (!started()) return kUninitialized;
  if (uuid == nullptr || device == nullptr) return kInvalidArgument;
  for (std::size_t i = 0; i < device_count(); ++i) {
    if (::strcasecmp(facts(i).uuid.c_str(), uuid) != 0) continue;
    *device = handle_of(i);
    return kSuccess;
  }
  return kNotFound;
}

CUDASIM_NVML Return nvmlDeviceGetHandleByPciBusId_v2(const char* id, Device** device) {
  if (!started()) return kUninitialized;
  unsigned domain = 0, bus = 0, slot = 0;
  if (id == nullptr || device == nullptr || !parse_bus_id(id, domain, bus, slot)) return kInvalidArgument;
  for (std::size_t i = 0; i < device_count(); ++i) {
    const Facts f = facts(i);
    if (f.pci_domain != domain || f.pci_bus != bus || f.pci_device != slot) continue;
    *device = handle_of(i);
    return kSuccess;
  }
  return kNotFound;
}
CUDASIM_NVML Return nvmlDeviceGetHandleByPciBusId(const char* id, Device** device) {
  return nvmlDeviceGetHandleByPciBusId_v2(id, device);
}

CUDASIM_NVML Return nvmlDeviceGetIndex(const Device* device, unsigned* index) {
  return give_mode(device, index, static_cast<unsigned>(device_of(device).index));
}
CUDASIM_NVML Return nvmlDeviceGetMinorNumber(const Device* device, unsigned* minor) {
  return nvmlDeviceGetIndex(device, minor);
}
CUDASIM_NVML Return nvmlDeviceGetName(const Device* device, char* name, unsigned length) {
  const Found found = device_of(device);
  return found.result != kSuccess ? found.result : copy_text(facts(found.index).name.c_str(), name, length);
}
CUDASIM_NVML Return nvmlDeviceGetUUID(const Device* device, char* uuid, unsigned length) {
  const Found found = device_of(device);
  return found.result != kSuccess ? found.result : copy_text(facts(found.index).uuid.c_str(), uuid, length);
}

CUDASIM_NVML Return nvmlDeviceGetPciInfo_v3(const Device* device, PciInfo* info) {
  const Found found = device_of(device);
  if (found.result != kSuccess) return found.result;
  if (info == nullptr) return kInvalidArgument;
  const Facts f = facts(found.index);
  *info = {};
  info->domain = f.pci_domain, info->bus = f.pci_bus, info->device = f.pci_device;
  info->device_id = kDeviceId;
  bus_id(f, "%08X:%02X:%02X.0", info->bus_id, sizeof info->bus_id);
  bus_id(f, "%04X:%02X:%02X.0", info->bus_id_legacy, sizeof info->bus_id_legacy);
  return kSuccess;
}
CUDASIM_NVML Return nvmlDeviceGetPciInfo_v2(const Device* device, PciInfoV2* info) {
  if (info == nullptr) return kInvalidArgument;
  PciInfo newer;
  const Return result = nvmlDeviceGetPciInfo_v3(device, &newer);
  if (result != kSuccess) return result;
  *info = {};
  std::memcpy(info->bus_id, newer.bus_id_legacy, sizeof info->bus_id);
  info->domain = newer.domain, info->bus = newer.bus, info->device = newer.device,
  info->device_id = newer.device_id;
  return kSuccess;
}
CUDASIM_NVML Return nvmlDeviceGetPciInfo(const Device* device, PciInfoV2* info) {
  return nvmlDeviceGetPciInfo_v2(device, info);
}

CUDASIM_NVML Return nvmlDeviceGetPersistenceMode(const Device* device, unsigned* mode) {
  if (const Return result = enter("nvmlDeviceGetPersistenceMode"); result != kSuccess) return result;
  const Found found = device_of(device);
  if (found.result != kSuccess) return found.result;
  return give_mode(device, mode, facts(found.index).persistence ? 1 : 0);
}
CUDASIM_NVML Return nvmlDeviceGetComputeMode(const Device* device, unsigned* mode) {
  return give_mode(device, mode, 0);
}
CUDASIM_NVML Return nvmlDeviceGetDisplayMode(const Device* device, unsigned* mode) {
  return give_mode(device, mode, 0);
}
CUDASIM_NVML Return nvmlDeviceGetDisplayActive(const Device* device, unsigned* on) {
  return give_mode(device, on, 0);
}

CUDASIM_NVML Return nvmlDeviceGetCudaComputeCapability(const Device* device, int* major, int* minor) {
  const Found found = device_of(device);
  if (found.result != kSuccess) return found.result;
  if (major == nullptr || minor == nullptr) return kInvalidArgument;
  *major = 8, *minor = 0;
  return kSuccess;
}

// No MIG: the mode is off and cannot be on, and no device is an instance of another.
CUDASIM_NVML Return nvmlDeviceGetMigMode(const Device* device, unsigned*, unsigned*) {
  const Found found = device_of(device);
  return found.result != kSuccess ? found.result : kNotSupported;
}
CUDASIM_NVML Return nvmlDeviceGetMaxMigDeviceCount(const Device* device, unsigned* count) {
  return give_mode(device, count, 0);
}
CUDASIM_NVML Return nvmlDeviceGetMigDeviceHandleByIndex(const Device* device, unsigned, Device**) {
  const Found found = device_of(device);
  return found.result != kSuccess ? found.result : kNotFound;
}
CUDASIM_NVML Return nvmlDeviceIsMigDeviceHandle(const Device* device, unsigned* is_mig) {
  return give_mode(device, is_mig, 0);
}
CUDASIM_NVML Return nvmlDeviceGetDeviceHandleFromMigDeviceHandle(const Device* device, Device**) {
  const Found found = device_of(device);
  return found.result != kSuccess ? found.result : kInvalidArgument;
}
CUDASIM_NVML Return nvmlDeviceGetGpuInstanceId(const Device* device, unsigned*) {
  const Found found = device_of(device);
  return found.result != kSuccess ? found.result : kNotSupported;
}
CUDASIM_NVML Return nvmlDeviceGetComputeInstanceId(const Device* device, unsigned* id) {
  return nvmlDeviceGetGpuInstanceId(device, id);
}
