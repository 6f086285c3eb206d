// The few NVML types this library needs. nvml.h is not in the toolkit; the layouts are those of NVML 12 and
// 13, as the public nvidia-ml-py bindings show them, and are pinned here.
#pragma once

#include <cstddef>

namespace cudasim::nvml {

enum Return : int {
  kSuccess = 0,
  kUninitialized = 1,
  kInvalidArgument = 2,
  kNotSupported = 3,
  kNotFound = 6,
  kInsufficientSize = 7,
  kDriverNotLoaded = 9,
  kArgumentVersionMismatch = 25,
  kGpuIsLost = 15,
  kUnknown = 999,
};

struct Memory {  // bytes; used includes what the driver keeps for itself
  unsigned long long total, free, used;
};
static_assert(sizeof(Memory) == 24);

struct MemoryV2 {  // total = reserved + free + used
  unsigned version;
  unsigned long long total, reserved, free, used;
};
static_assert(sizeof(MemoryV2) == 40 && offsetof(MemoryV2, total) == 8);
constexpr unsigned kMemoryV2Version = sizeof(MemoryV2) | 2U << 24;
static_assert(kMemoryV2Version == 0x02000028);

struct ProcessInfoV1 {
  unsigned pid;
  unsigned long long used_bytes;
};
static_assert(sizeof(ProcessInfoV1) == 16);

struct ProcessInfo {  // v2 and v3
  unsigned pid;
  unsigned long long used_bytes;
  unsigned gpu_instance, compute_instance;  // all bits set: no MIG
};
static_assert(sizeof(ProcessInfo) == 24 && offsetof(ProcessInfo, gpu_instance) == 16);

struct PciInfoV2 {
  char bus_id[16];
  unsigned domain, bus, device, device_id, subsystem_id, reserved[4];
};
static_assert(sizeof(PciInfoV2) == 52);

struct PciInfo {  // v3
  char bus_id_legacy[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
};
static_assert(sizeof(PciInfo) == 68 && offsetof(PciInfo, bus_id) == 36);

struct Device;  // opaque: nvmlDevice_t points to one

}  // namespace cudasim::nvml
