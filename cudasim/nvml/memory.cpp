// NVML's figures: memory of a device, and of the processes on it.
#include <vector>

#include "cudasim/nvml/call.hpp"
#include "cudasim/nvml/source.hpp"
#include "cudasim/nvml/state.hpp"

namespace {

using namespace cudasim::nvml;

constexpr unsigned kNoInstance = ~0U;

struct Sampled {
  Return result;
  Facts facts;
  Use use;
};

Sampled sample(const char* function, const Device* device) {
  if (const Return result = enter(function); result != kSuccess) return {result, {}, {}};
  const Found found = device_of(device);
  if (found.result != kSuccess) return {found.result, {}, {}};
  Sampled sampled{kSuccess, facts(found.index), use(found.index)};
  if (sampled.use.lost) sampled.result = kGpuIsLost;
  return sampled;
}

// Rule of all versions: *count is the room on entry and the number on return; too little room asks for more.
template <typename Info, typename Fill>
Return list_processes(const char* function, const Device* device, unsigned* count, Info* infos, Fill fill) {
  const Sampled sampled = sample(function, device);
  if (sampled.result != kSuccess) return sampled.result;
  if (count == nullptr || (*count != 0 && infos == nullptr)) return kInvalidArgument;
  const auto& processes = sampled.use.processes;
  const unsigned room = *count;
  *count = static_cast<unsigned>(processes.size());
  if (processes.size() > room) return kInsufficientSize;
  for (std::size_t i = 0; i < processes.size(); ++i)
    infos[i] = fill(processes[i]);
  return kSuccess;
}

ProcessInfoV1 without_instance(const ProcessUse& process) {
  return {process.pid, process.bytes};
}
ProcessInfo with_instance(const ProcessUse& process) {
  return {process.pid, process.bytes, kNoInstance, kNoInstance};
}

// Graphics and MPS clients: there are none.
Return no_processes(const Device* device, unsigned* count) {
  const Found found = device_of(device);
  if (found.result != kSuccess) return found.result;
  if (count == nullptr) return kInvalidArgument;
  *count = 0;
  return kSuccess;
}

}  // namespace

CUDASIM_NVML Return nvmlDeviceGetMemoryInfo(const Device* device, Memory* memory) {
  const Sampled sampled = sample("nvmlDeviceGetMemoryInfo", device);
  if (sampled.result != kSuccess) return sampled.result;
  if (memory == nullptr) return kInvalidArgument;
  const std::uint64_t total = sampled.facts.total_bytes;
  *memory = {total, total - sampled.use.used_bytes, sampled.use.used_bytes};
  return kSuccess;
}

CUDASIM_NVML Return nvmlDeviceGetMemoryInfo_v2(const Device* device, MemoryV2* memory) {
  const Sampled sampled = sample("nvmlDeviceGetMemoryInfo", device);
  if (sampled.result != kSuccess) return sampled.result;
  if (memory == nullptr) return kInvalidArgument;
  if (memory->version != kMemoryV2Version) return kArgumentVersionMismatch;
  const std::uint64_t total = sampled.facts.total_bytes;
  *memory = {kMemoryV2Version, total, 0, total - sampled.use.used_bytes, sampled.use.used_bytes};
  return kSuccess;
}

CUDASIM_NVML Return nvmlDeviceGetComputeRunningProcesses(const Device* device, unsigned* count,
                                                         ProcessInfoV1* infos) {
  return list_processes("nvmlDeviceGetComputeRunningProcesses", device, count, infos, without_instance);
}
CUDASIM_NVML Return nvmlDeviceGetComputeRunningProcesses_v2(const Device* device, unsigned* count,
                                                            ProcessInfo* infos) {
  return list_processes("nvmlDeviceGetComputeRunningProcesses", device, count, infos, with_instance);
}
CUDASIM_NVML Return nvmlDeviceGetComputeRunningProcesses_v3(const Device* device, unsigned* count,
                                                            ProcessInfo* infos) {
  return list_processes("nvmlDeviceGetComputeRunningProcesses", device, count, infos, with_instance);
}

CUDASIM_NVML Return nvmlDeviceGetGraphicsRunningProcesses(const Device* d, unsigned* n, ProcessInfoV1*) {
  return no_processes(d, n);
}
CUDASIM_NVML Return nvmlDeviceGetGraphicsRunningProcesses_v2(const Device* d, unsigned* n, ProcessInfo*) {
  return no_processes(d, n);
}
CUDASIM_NVML Return nvmlDeviceGetGraphicsRunningProcesses_v3(const Device* d, unsigned* n, ProcessInfo*) {
  return no_processes(d, n);
}
CUDASIM_NVML Return nvmlDeviceGetMPSComputeRunningProcesses(const Device* d, unsigned* n, ProcessInfoV1*) {
  return no_processes(d, n);
}
CUDASIM_NVML Return nvmlDeviceGetMPSComputeRunningProcesses_v2(const Device* d, unsigned* n, ProcessInfo*) {
  return no_processes(d, n);
}
CUDASIM_NVML Return nvmlDeviceGetMPSComputeRunningProcesses_v3(const Device* d, unsigned* n, ProcessInfo*) {
  return no_processes(d, n);
}
