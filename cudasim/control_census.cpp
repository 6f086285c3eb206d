// The exact census: what the kernel says about each allocation file and each process's mappings.
#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <unordered_map>

#include "cudasim/control.hpp"
#include "cudasim/store/census.hpp"

namespace cudasim {
namespace {

bool is_referenced(const Folder& folder, u32 slot) {
  const int fd = ::open(folder.allocation_path(slot).c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return false;
  const bool held = ::flock(fd, LOCK_EX | LOCK_NB) != 0;
  ::close(fd);
  return held;
}

// Data mappings of one process, by inode. A handle is one page, a data mapping never is.
void read_maps(int pid, u64 file_system, std::unordered_map<u64, std::set<int>>& mapped) {
  char path[32], line[4400];
  std::snprintf(path, sizeof path, "/proc/%d/maps", pid);
  FILE* maps = std::fopen(path, "re");
  if (!maps) return;
  while (std::fgets(line, sizeof line, maps)) {
    u64 start = 0, end = 0, inode = 0;
    unsigned major_number = 0, minor_number = 0;
    if (std::sscanf(line, "%" SCNx64 "-%" SCNx64 " %*s %*x %x:%x %" SCNu64, &start, &end, &major_number,
                    &minor_number, &inode) != 5)
      continue;
    if (end - start > kPage && inode && makedev(major_number, minor_number) == file_system)
      mapped[inode].insert(pid);
  }
  std::fclose(maps);
}

std::unordered_map<u64, std::set<int>> read_all_maps(u64 file_system) {
  std::unordered_map<u64, std::set<int>> mapped;
  DIR* entries = ::opendir("/proc");
  while (dirent* entry = entries ? ::readdir(entries) : nullptr)
    if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9')
      read_maps(std::atoi(entry->d_name), file_system, mapped);
  if (entries) ::closedir(entries);
  return mapped;
}

std::string uuid_text(const u8* uuid) {
  std::string text = "GPU-";
  for (int i = 0; i < 16; i++) {
    char part[4];
    std::snprintf(part, sizeof part, "%02x", uuid[i]);
    text += part;
    if (i == 3 || i == 5 || i == 7 || i == 9) text += '-';
  }
  return text;
}

const char* kind_name(AllocationKind kind) {
  switch (kind) {
    case AllocationKind::kVmm:
      return "vmm";
    case AllocationKind::kLinear:
      return "linear";
    case AllocationKind::kManaged:
      return "managed";
    case AllocationKind::kPool:
      return "pool";
    case AllocationKind::kHost:
      return "host";
  }
  return "?";
}

}  // namespace

CensusReport Control::census() const {
  const auto mapped = read_all_maps(folder_->file_system());
  CensusReport report;
  Folder::Lock lock(*folder_);
  settle_locked(*folder_, Census::kExact);
  for (u32 i = 0; i < page().slot_high_water; i++) {
    const AllocationSlot& slot = folder_->slot(i);
    if (slot.state != static_cast<u32>(SlotState::kLive)) continue;
    AllocationInfo info{i,
                        slot.device,
                        static_cast<AllocationKind>(slot.kind),
                        slot.serial,
                        slot.bytes,
                        slot.charged_bytes,
                        slot.creator_pid,
                        is_referenced(*folder_, i),
                        {}};
    if (auto found = mapped.find(slot.inode); found != mapped.end())
      info.mapped_by.assign(found->second.begin(), found->second.end());
    report.physical_bytes += slot.bytes;
    if (info.referenced) report.referenced_bytes += slot.bytes;
    if (info.mapped_by.size() > 1) report.overlap_bytes += slot.bytes;
    report.allocations.push_back(std::move(info));
  }
  for (u32 d = 0; d < page().device_count; d++) {
    const DeviceRecord& device = page().devices[d];
    report.devices.push_back({device.total_bytes, device.used_bytes + device.stranger_bytes,
                              device.stranger_bytes, 0, uuid_text(device.uuid)});
  }
  for (u32 i = 0; i < page().process_high_water; i++) {
    const ProcessRecord& process = page().processes[i];
    if (process.state == static_cast<u32>(ProcessState::kFree)) continue;
    ProcessInfo info{process.pid, process.state == static_cast<u32>(ProcessState::kDying), 0, 0};
    for (u32 d = 0; d < page().device_count; d++) {
      info.context_bytes += process.context_bytes[d];
      report.devices[d].context_bytes += process.context_bytes[d];
    }
    for (u32 f = 0; f < kMaxFunctions && page().functions[f].named; f++)
      info.calls += folder_->count(i, f);
    report.processes.push_back(info);
  }
  return report;
}

std::string to_json(const CensusReport& report) {
  auto number = [](u64 value) { return std::to_string(value); };
  std::string text = "{\"devices\":[";
  for (const DeviceInfo& device : report.devices)
    text += (text.back() == '[' ? "" : ",") + std::string("{\"uuid\":\"") + device.uuid +
            "\",\"total_bytes\":" + number(device.total_bytes) +
            ",\"used_bytes\":" + number(device.used_bytes) +
            ",\"context_bytes\":" + number(device.context_bytes) +
            ",\"stranger_bytes\":" + number(device.stranger_bytes) + "}";
  text += "],\"processes\":[";
  for (const ProcessInfo& process : report.processes)
    text += (text.back() == '[' ? "" : ",") + std::string("{\"pid\":") + std::to_string(process.pid) +
            ",\"dying\":" + (process.dying ? "true" : "false") +
            ",\"context_bytes\":" + number(process.context_bytes) + ",\"calls\":" + number(process.calls) +
            "}";
  text += "],\"allocations\":[";
  for (const AllocationInfo& allocation : report.allocations) {
    text += (text.back() == '[' ? "" : ",") + std::string("{\"slot\":") + number(allocation.slot) +
            ",\"kind\":\"" + kind_name(allocation.kind) + "\",\"device\":" + number(allocation.device) +
            ",\"bytes\":" + number(allocation.bytes) +
            ",\"creator_pid\":" + std::to_string(allocation.creator_pid) +
            ",\"referenced\":" + (allocation.referenced ? "true" : "false") + ",\"mapped_by\":[";
    for (int pid : allocation.mapped_by)
      text += (text.back() == '[' ? "" : ",") + std::to_string(pid);
    text += "]}";
  }
  return text + "],\"physical_bytes\":" + number(report.physical_bytes) +
         ",\"referenced_bytes\":" + number(report.referenced_bytes) +
         ",\"overlap_bytes\":" + number(report.overlap_bytes) + "}";
}

}  // namespace cudasim
