#include "cudasim/store/allocation.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <unordered_map>

#include "cudasim/store/backing_file.hpp"
#include "cudasim/store/census.hpp"

namespace cudasim {
namespace {

// References of this process per slot: the holder bit goes with the last one. Leaked, so that no exit
// handler of a forked child takes the parent's bits away.
std::mutex& local_mutex() {
  static auto* mutex = new std::mutex;
  return *mutex;
}
std::unordered_map<u32, u32>& local_references() {
  static auto* map = new std::unordered_map<u32, u32>;
  return *map;
}

u64 bit_of(u32 process) {
  return u64{1} << (process % 64);
}

void hold(AllocationSlot& record, u32 slot, u32 process) {
  std::lock_guard guard(local_mutex());
  local_references()[slot]++;
  record.holders[process / 64].fetch_or(bit_of(process), std::memory_order_relaxed);
}

bool has_room(const Folder& folder, const AllocationSpec& spec) {
  const DeviceRecord& device = folder.page().devices[spec.device];
  return !spec.on_device || spec.may_exceed || folder.breaks(6) ||
         device.used_bytes + device.stranger_bytes + spec.bytes <= device.total_bytes;
}

u64 charge_of(const Folder& folder, const AllocationSpec& spec) {
  if (!spec.on_device) return 0;
  if (!spec.may_exceed) return spec.bytes;
  const DeviceRecord& device = folder.page().devices[spec.device];
  const u64 used = device.used_bytes + device.stranger_bytes;
  return used >= device.total_bytes ? 0 : std::min(spec.bytes, device.total_bytes - used);
}

u32 take_slot(ControlPage& page, const Folder& folder) {
  if (u32 first = page.slot_free_list) {
    page.slot_free_list = folder.slot(first - 1).next_free;
    return first - 1;
  }
  return page.slot_high_water < kMaxAllocations ? page.slot_high_water++ : kMaxAllocations;
}

void fill_slot(AllocationSlot& record, const AllocationSpec& spec, u32 process, const Folder& folder) {
  record.kind = static_cast<u32>(spec.kind);
  record.device = spec.device;
  record.serial = folder.page().next_serial++;
  record.bytes = spec.bytes;
  record.charged_bytes = charge_of(folder, spec);
  record.creator_pid = ::getpid();
  record.creator_process = process;
  record.creator_serial = folder.page().processes[process].serial;
  record.location_type = spec.location_type;
  record.location_id = spec.location_id;
  record.handle_types = spec.handle_types;
  record.compression = spec.compression;
  record.rdma = spec.rdma;
  record.usage = spec.usage;
  record.exported = record.ipc_opens = record.freed = record.handles = record.creator_access = 0;
  for (auto& word : record.holders)
    word = 0;
}

// The slot that an fd's name says it is; kMaxAllocations when it says nothing. The caller compares inodes.
u32 slot_of_fd(int fd) {
  char link[64], target[PATH_MAX];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t length = ::readlink(link, target, sizeof target - 1);
  if (length <= 0) return kMaxAllocations;
  target[length] = 0;
  const char* name = std::strrchr(target, '/');
  if (!name || name[1] < '0' || name[1] > '9') return kMaxAllocations;
  const u64 slot = std::strtoull(name + 1, nullptr, 10);
  return slot < kMaxAllocations ? static_cast<u32>(slot) : kMaxAllocations;
}

void drop_charge(const Folder& folder, AllocationSlot& record) {
  folder.page().devices[record.device].used_bytes -= record.charged_bytes;
  record.charged_bytes = 0;
}

bool is_slot(const Folder& folder, u32 slot, u64 inode) {
  return slot < folder.page().slot_high_water &&
         folder.slot(slot).state.load(std::memory_order_acquire) == static_cast<u32>(SlotState::kLive) &&
         folder.slot(slot).inode == inode;
}

}  // namespace

Allocation::Allocation(const Folder& folder, u32 process, u32 slot, u64 serial, u64 bytes, void* page)
    : folder_(folder), process_(process), slot_(slot), serial_(serial), bytes_(bytes), page_(page) {}

std::shared_ptr<Allocation> Allocation::adopt(const Folder& folder, u32 process, int fd, u32 slot,
                                              StoreError& error) {
  void* page = ::mmap(nullptr, kPage, PROT_NONE, MAP_SHARED, fd, 0);
  if (page == MAP_FAILED) {
    error = StoreError::kSystem;
    return nullptr;
  }
  if (folder.breaks(37)) ::madvise(page, kPage, MADV_DONTFORK);
  AllocationSlot& record = folder.slot(slot);
  hold(record, slot, process);
  error = StoreError::kNone;
  return std::shared_ptr<Allocation>(
      new Allocation(folder, process, slot, record.serial, record.bytes, page));
}

std::shared_ptr<Allocation> Allocation::create(const Folder& folder, u32 process, const AllocationSpec& spec,
                                               StoreError& error) {
  ControlPage& page = folder.page();
  Folder::Lock lock(folder);
  error = StoreError::kNoMemory;
  if (!has_room(folder, spec)) {
    settle_locked(folder, Census::kExact);
    if (!has_room(folder, spec)) return nullptr;
  }
  const u32 slot = take_slot(page, folder);
  if (slot == kMaxAllocations) {
    std::fprintf(stderr, "cudasim: the table of %s is full: %u allocations at most (rule 39); free some\n",
                 folder.path().c_str(), kMaxAllocations);
    return nullptr;
  }
  AllocationSlot& record = folder.slot(slot);
  const int fd = make_backing_file(folder, slot, spec.bytes);
  struct stat status {};
  std::shared_ptr<Allocation> made;
  if (fd >= 0 && ::fstat(fd, &status) == 0) {
    fill_slot(record, spec, process, folder);
    record.inode = status.st_ino;
    made = adopt(folder, process, fd, slot, error);
  } else {
    error = StoreError::kSystem;
  }
  if (fd >= 0) ::close(fd);
  if (!made) {
    ::unlink(folder.allocation_path(slot).c_str());
    record.next_free = page.slot_free_list;
    page.slot_free_list = slot + 1;
    return nullptr;
  }
  page.live_slots++;
  page.devices[spec.device].used_bytes += record.charged_bytes;
  record.state.store(static_cast<u32>(SlotState::kLive), std::memory_order_release);
  return made;
}

std::shared_ptr<Allocation> Allocation::import(const Folder& folder, u32 process, int fd, StoreError& error) {
  error = StoreError::kNotAnAllocation;
  struct stat status {};
  if (::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) || status.st_dev != folder.file_system() ||
      (::fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDWR)
    return nullptr;
  Folder::Lock lock(folder);
  u32 slot = slot_of_fd(fd);
  if (!is_slot(folder, slot, status.st_ino))  // no /proc, or a name that is not ours: look for the inode
    for (slot = 0; slot < folder.page().slot_high_water && !is_slot(folder, slot, status.st_ino);)
      slot++;
  if (!is_slot(folder, slot, status.st_ino)) return nullptr;
  if (::flock(fd, LOCK_SH | LOCK_NB) != 0) return nullptr;  // an fd that somebody opened by name
  return adopt(folder, process, fd, slot, error);
}

std::shared_ptr<Allocation> Allocation::open(const Folder& folder, u32 process, u32 slot, u64 serial,
                                             StoreError& error) {
  error = StoreError::kNotAnAllocation;
  Folder::Lock lock(folder);
  if (slot >= folder.page().slot_high_water || folder.slot(slot).serial != serial ||
      folder.slot(slot).state != static_cast<u32>(SlotState::kLive))
    return nullptr;
  const int fd = ::open(folder.allocation_path(slot).c_str(), O_RDWR | O_CLOEXEC);
  std::shared_ptr<Allocation> opened;
  if (fd >= 0 && ::flock(fd, LOCK_SH | LOCK_NB) == 0) opened = adopt(folder, process, fd, slot, error);
  if (fd >= 0) ::close(fd);
  return opened;
}

Allocation::~Allocation() {
  ::munmap(page_, kPage);
  Folder::Lock lock(folder_);
  AllocationSlot& record = folder_.slot(slot_);
  {
    std::lock_guard guard(local_mutex());
    auto found = local_references().find(slot_);
    if (--found->second) return;
    local_references().erase(found);
  }
  if (record.serial != serial_ || record.state != static_cast<u32>(SlotState::kLive))
    return;  // rule 24 took it
  record.holders[process_ / 64].fetch_and(~bit_of(process_), std::memory_order_relaxed);
  if (folder_.breaks(9) && !record.handles) drop_charge(folder_, record);
  if (!reap_if_free(folder_, slot_)) folder_.page().limbo = 1;
}

int Allocation::export_fd(StoreError& error) const {
  ControlPage& page = folder_.page();
  Folder::Lock lock(folder_);
  if (!record().exported) {
    if (page.exported_objects >= page.export_limit && !folder_.breaks(39)) {
      error = StoreError::kExportTableFull;
      return -1;
    }
    record().exported = 1;
    page.exported_objects++;
  }
  const int fd = ::open(folder_.allocation_path(slot_).c_str(), O_RDWR | O_CLOEXEC);
  struct stat status {};
  if (fd >= 0 && ::fstat(fd, &status) == 0 && status.st_ino == record().inode && record().serial == serial_ &&
      ::flock(fd, LOCK_SH | LOCK_NB) == 0) {
    error = StoreError::kNone;
    return fd;
  }
  if (fd >= 0) ::close(fd);
  error = StoreError::kSystem;
  return -1;
}

void Allocation::give_back_charge() const {
  Folder::Lock lock(folder_);
  if (!record().handles) drop_charge(folder_, record());
}

void* Allocation::map(u64 bytes, void* address, int protection) const {
  // Old size 0 duplicates a shared mapping: same open file description, so the lock stays with it.
  void* memory = ::mremap(page_, 0, bytes, address ? MREMAP_MAYMOVE | MREMAP_FIXED : MREMAP_MAYMOVE, address);
  if (memory == MAP_FAILED) return nullptr;
  ::madvise(memory, bytes, MADV_DONTFORK);
  if (protection != PROT_NONE && ::mprotect(memory, bytes, protection) != 0) {
    ::munmap(memory, bytes);
    return nullptr;
  }
  return memory;
}

bool Allocation::zero(u64 offset, u64 bytes) const {
  void* memory = map(bytes_, nullptr, PROT_READ | PROT_WRITE);
  if (!memory) return false;
  const bool done = ::madvise(static_cast<char*>(memory) + offset, bytes, MADV_REMOVE) == 0;
  ::munmap(memory, bytes_);
  return done;
}

}  // namespace cudasim
