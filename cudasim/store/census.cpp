#include "cudasim/store/census.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "cudasim/store/backing_file.hpp"

namespace cudasim {
namespace {

bool held_by_none(const AllocationSlot& slot) {
  for (const auto& word : slot.holders)
    if (word.load(std::memory_order_relaxed)) return false;
  return true;
}

void forget_holder(AllocationSlot& slot, u32 process) {
  slot.holders[process / 64].fetch_and(~(u64{1} << (process % 64)), std::memory_order_relaxed);
}

// True when no open file description has the file's lock. Callers hold the folder's lock, so that two
// probes cannot take each other for a holder.
bool unlocked(const std::string& path) {
  int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return errno == ENOENT;
  const bool free = ::flock(fd, LOCK_EX | LOCK_NB) == 0;
  ::close(fd);
  return free;
}

// SplitMix64, so that a seed gives the same delays on every machine.
u64 mix(u64 x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

void reap(const Folder& folder, u32 index) {
  ControlPage& page = folder.page();
  AllocationSlot& slot = folder.slot(index);
  slot.state.store(static_cast<u32>(SlotState::kFree), std::memory_order_release);
  page.devices[slot.device].used_bytes -= slot.charged_bytes;
  if (slot.exported.exchange(0)) page.exported_objects--;
  page.live_slots--;
  end_backing_file(folder, index);
  slot.next_free = page.slot_free_list;
  page.slot_free_list = index + 1;
}

void release_process(const Folder& folder, u32 index) {
  ControlPage& page = folder.page();
  ProcessRecord& process = page.processes[index];
  for (u32 i = 0; i < page.slot_high_water; i++)
    forget_holder(folder.slot(i), index);
  for (u32 d = 0; d < page.device_count; d++)
    page.devices[d].used_bytes -= process.context_bytes[d].exchange(0);
  ::unlink(folder.process_path(index).c_str());
  process.state.store(static_cast<u32>(ProcessState::kFree), std::memory_order_release);
}

// Rule 38: dead is seen at once, memory comes back later, as on a device.
bool bury_the_dead(const Folder& folder) {
  ControlPage& page = folder.page();
  const u64 now = monotonic_ns();
  bool released = false;
  for (u32 i = 0; i < page.process_high_water; i++) {
    ProcessRecord& process = page.processes[i];
    if (process.state == static_cast<u32>(ProcessState::kLive) && !folder.breaks(38) &&
        unlocked(folder.process_path(i))) {
      u64 delay_ms = 0;
      if (!process.clean_exit && page.death_max_ms) {
        const u64 span = page.death_max_ms - page.death_min_ms + 1;
        delay_ms = page.death_min_ms + mix(page.seed + process.serial) % span;
      }
      process.release_at_ns = now + delay_ms * 1000000;
      process.state.store(static_cast<u32>(ProcessState::kDying), std::memory_order_release);
    }
    if (process.state == static_cast<u32>(ProcessState::kDying) && now >= process.release_at_ns) {
      release_process(folder, i);
      released = true;
    }
  }
  return released;
}

// Rule 24: without persistence the device's state goes with its last user, exported objects included.
void end_idle_devices(const Folder& folder) {
  ControlPage& page = folder.page();
  for (u32 i = 0; i < page.process_high_water; i++)
    if (page.processes[i].state != static_cast<u32>(ProcessState::kFree) && page.processes[i].initialised)
      return;
  for (u32 i = 0; i < page.slot_high_water && page.live_slots; i++) {
    AllocationSlot& slot = folder.slot(i);
    if (slot.state != static_cast<u32>(SlotState::kLive)) continue;
    if (page.devices[slot.device].persistence == (folder.breaks(24) ? 1 : 0)) reap(folder, i);
  }
}

}  // namespace

void settle_locked(const Folder& folder, Census how) {
  ControlPage& page = folder.page();
  const bool somebody_died = bury_the_dead(folder);
  end_idle_devices(folder);
  if (!somebody_died && !page.limbo && how == Census::kQuick) return;
  bool limbo = false;
  for (u32 i = 0; i < page.slot_high_water && page.live_slots; i++) {
    AllocationSlot& slot = folder.slot(i);
    if (slot.state != static_cast<u32>(SlotState::kLive)) continue;
    if (held_by_none(slot) && !reap_if_free(folder, i)) limbo = true;
  }
  page.limbo = limbo;
}

u32 register_process(const Folder& folder, bool temporary, std::string& error) {
  ControlPage& page = folder.page();
  Folder::Lock lock(folder);
  if (!folder.is_in_place()) {
    error = "cudasim: " + folder.path() + " was removed";
    return kMaxProcesses;
  }
  settle_locked(folder, Census::kQuick);
  u32 index = kMaxProcesses;
  for (u32 i = 0; i < kMaxProcesses && index == kMaxProcesses; i++) {
    const u32 candidate = (page.process_hint + i) % kMaxProcesses;
    if (page.processes[candidate].state == static_cast<u32>(ProcessState::kFree)) index = candidate;
  }
  if (index == kMaxProcesses) {
    error = "cudasim: " + folder.path() + " has no room for another process (" +
            std::to_string(kMaxProcesses) + " at most); end some, or set CUDASIM_DIR to another folder";
    return kMaxProcesses;
  }
  const std::string path = folder.process_path(index);
  ::unlink(path.c_str());
  int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) {
    error = "cudasim: cannot make " + path + ": " + std::strerror(errno);
    return kMaxProcesses;
  }
  (void)::fchmod(fd, 0666);
  void* keeper = MAP_FAILED;
  if (::flock(fd, LOCK_SH | LOCK_NB) == 0) keeper = ::mmap(nullptr, kPage, PROT_NONE, MAP_SHARED, fd, 0);
  const int failed = errno;  // of the lock or the mapping, where one failed
  ::close(fd);
  if (keeper == MAP_FAILED) {
    error = "cudasim: cannot lock and map " + path + ": " + std::strerror(failed);
    return kMaxProcesses;
  }
  ::madvise(keeper, kPage, MADV_DONTFORK);  // a forked child is not this process

  ProcessRecord& process = page.processes[index];
  process.pid = ::getpid();
  process.uid = ::getuid();
  struct stat status {};
  process.pid_namespace = ::stat("/proc/self/ns/pid", &status) == 0 ? status.st_ino : 0;
  if (process.serial)
    std::memset(static_cast<void*>(&folder.count(index, 0)), 0, kMaxFunctions * sizeof(u64));
  process.serial = page.next_serial++;
  process.initialised = process.clean_exit = 0;
  process.sticky_code = 0;
  for (auto& bytes : process.context_bytes)
    bytes = 0;
  page.process_hint = (index + 1) % kMaxProcesses;
  // Before the state: a process killed in between must be found by whoever buries the dead.
  if (index >= page.process_high_water) page.process_high_water = index + 1;
  if (!temporary) page.temporary = 0;
  process.state.store(static_cast<u32>(ProcessState::kLive), std::memory_order_release);
  return index;
}

bool reap_if_free(const Folder& folder, u32 index) {
  AllocationSlot& slot = folder.slot(index);
  if (slot.state != static_cast<u32>(SlotState::kLive) || !held_by_none(slot)) return false;
  if (!unlocked(folder.allocation_path(index))) return false;
  reap(folder, index);
  return true;
}

void settle(const Folder& folder, Census how) {
  Folder::Lock lock(folder);
  settle_locked(folder, how);
}

u64 used_bytes(const Folder& folder, u32 device, Census how) {
  settle(folder, how);
  const DeviceRecord& record = folder.page().devices[device];
  return record.used_bytes + record.stranger_bytes;
}

// Rule 41: who made it pays while it has a handle or a mapping. Bytes that only an fd or an importer holds
// are in use of the device and on nobody's bill. Rule 42: managed memory is not on it either.
u64 process_bytes(const Folder& folder, u32 device, u32 process) {
  const ProcessRecord& record = folder.page().processes[process];
  u64 bytes = record.context_bytes[device];
  for (u32 i = 0; i < folder.page().slot_high_water; i++) {
    const AllocationSlot& slot = folder.slot(i);
    if (slot.state.load(std::memory_order_acquire) != static_cast<u32>(SlotState::kLive)) continue;
    if (slot.device != device) continue;
    const bool made = slot.creator_process == process && slot.creator_serial == record.serial;
    const bool holds =
        (slot.holders[process / 64].load(std::memory_order_relaxed) >> (process % 64) & 1) != 0;
    const bool managed = slot.kind == static_cast<u32>(AllocationKind::kManaged);
    const bool billed = folder.breaks(41) ? made || holds || held_by_none(slot) : made && holds;
    if (billed && (!managed || folder.breaks(42))) bytes += slot.charged_bytes;
  }
  return bytes;
}

void recompute(const Folder& folder) {
  ControlPage& page = folder.page();
  u64 used[kMaxDevices] = {};
  u32 live = 0, exported = 0, free_list = 0;
  for (u32 i = 0; i < page.slot_high_water; i++) {
    AllocationSlot& slot = folder.slot(i);
    if (slot.state == static_cast<u32>(SlotState::kLive)) {
      used[slot.device] += slot.charged_bytes;
      live++;
      exported += slot.exported;
    } else {
      slot.next_free = free_list;
      free_list = i + 1;
    }
  }
  for (const auto& process : page.processes)
    if (process.state != static_cast<u32>(ProcessState::kFree))
      for (u32 d = 0; d < page.device_count; d++)
        used[d] += process.context_bytes[d];
  for (u32 d = 0; d < page.device_count; d++)
    page.devices[d].used_bytes = used[d];
  page.live_slots = live;
  page.exported_objects = exported;
  page.slot_free_list = free_list;
  page.limbo = 1;
}

}  // namespace cudasim
