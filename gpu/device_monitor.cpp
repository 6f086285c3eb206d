// Reading NVML: gpu/device_monitor.hpp.
#include "gpu/device_monitor.hpp"

#include <algorithm>
#include <map>

namespace apportion {
namespace {

constexpr unsigned kFirstProcesses = 64;
constexpr unsigned kMostProcesses = 1u << 16;
constexpr int kTries = 4;  // the list can grow between the question for its length and the reading of it

using ListProcesses = NvmlReturn (*)(NvmlDevice, unsigned*, NvmlProcessInfo*);

Result<std::vector<NvmlProcessInfo>> list(const NvmlTable& nvml, ListProcesses call, NvmlDevice device) {
  std::vector<NvmlProcessInfo> infos(kFirstProcesses);
  NvmlReturn result = kNvmlSuccess;
  for (int i = 0; i < kTries; ++i) {
    unsigned count = static_cast<unsigned>(infos.size());
    result = call(device, &count, infos.data());
    if (result == kNvmlSuccess) {
      infos.resize(std::min<std::size_t>(count, infos.size()));
      return infos;
    }
    if (result != kNvmlInsufficientSize) break;
    infos.resize(std::min(std::max(count, static_cast<unsigned>(infos.size())) * 2, kMostProcesses));
  }
  return nvml_error(nvml, result, "nvmlDeviceGet*RunningProcesses_v3");
}

std::optional<bool> flag(NvmlReturn (*call)(NvmlDevice, int*), NvmlDevice device) {
  int value = 0;
  if (call == nullptr || call(device, &value) != kNvmlSuccess) return std::nullopt;
  return value != 0;
}

}  // namespace

Result<DeviceMonitor> DeviceMonitor::open(const Device& device) {
  const DeviceDescription& facts = device.facts();
  auto table = NvmlTable::load(NvmlTable::path_for(facts.driver_file, facts.simulated));
  if (!table) return table.error();
  DeviceMonitor monitor;
  monitor.nvml_ = *std::move(table);
  const NvmlReturn result = monitor.nvml_.device_get_handle_by_uuid(facts.uuid.c_str(), &monitor.device_);
  if (result != kNvmlSuccess) {
    Error error = nvml_error(monitor.nvml_, result, "nvmlDeviceGetHandleByUUID");
    error.message += ": NVML does not know " + facts.uuid + ", which the driver shows";
    return error;
  }
  return monitor;
}

Result<DeviceMemory> DeviceMonitor::memory() const {
  if (nvml_.device_get_memory_info_v2 != nullptr) {
    NvmlMemoryV2 memory{};
    memory.version = kNvmlMemoryV2Version;
    if (nvml_.device_get_memory_info_v2(device_, &memory) == kNvmlSuccess)
      return DeviceMemory{.total = {memory.total_bytes},
                          .free = {memory.free_bytes},
                          .used = saturating_sub({memory.total_bytes}, {memory.free_bytes}),
                          .reserved = {memory.reserved_bytes}};
  }
  NvmlMemory memory{};
  const NvmlReturn result = nvml_.device_get_memory_info(device_, &memory);
  if (result != kNvmlSuccess) return nvml_error(nvml_, result, "nvmlDeviceGetMemoryInfo");
  return DeviceMemory{.total = {memory.total_bytes},
                      .free = {memory.free_bytes},
                      .used = {memory.used_bytes},
                      .reserved = {}};
}

Result<std::vector<DeviceProcess>> DeviceMonitor::processes() const {
  if (nvml_.device_get_compute_running_processes_v3 == nullptr)
    return Error{Errc::driver, "NVML '" + nvml_.path() + "' has no nvmlDeviceGetComputeRunningProcesses_v3"};
  auto compute = list(nvml_, nvml_.device_get_compute_running_processes_v3, device_);
  if (!compute) return compute.error();
  std::vector<NvmlProcessInfo> infos = *std::move(compute);
  if (nvml_.device_get_graphics_running_processes_v3 != nullptr) {
    // A device without graphics answers an error here: that is an empty list.
    if (auto graphics = list(nvml_, nvml_.device_get_graphics_running_processes_v3, device_))
      infos.insert(infos.end(), graphics->begin(), graphics->end());
  }
  // A process of both kinds is in both lists, each time with all its memory.
  std::map<pid_t, std::optional<Bytes>> by_pid;
  for (const NvmlProcessInfo& info : infos) {
    std::optional<Bytes>& used = by_pid[static_cast<pid_t>(info.pid)];
    if (info.used_bytes == kNvmlValueNotAvailable) continue;
    used = std::max(used.value_or(Bytes{}), Bytes{info.used_bytes});
  }
  std::vector<DeviceProcess> processes;
  for (const auto& [pid, used] : by_pid)
    processes.push_back({pid, used});
  return processes;
}

std::optional<bool> DeviceMonitor::display() const {
  return flag(nvml_.device_get_display_active, device_);
}

std::optional<bool> DeviceMonitor::persistence() const {
  return flag(nvml_.device_get_persistence_mode, device_);
}

}  // namespace apportion
