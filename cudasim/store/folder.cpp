#include "cudasim/store/folder.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <mutex>
#include <utility>

#include "cudasim/store/census.hpp"
#include "cudasim/store/parts.hpp"

namespace cudasim {
namespace {

// What one context costs where nobody says: the smaller of the two.
constexpr u64 kLargestContext = 512ull << 20;
constexpr u64 kContextPart = 32;  // of the device

// Shown for the functions that have no record of their own.
constexpr const char* kOverflowName = "(table full)";

// How long a caller waits for the folder's lock before it tells whom it waits for.
constexpr time_t kLockPatienceSeconds = 10;

// Tables, ring and the pages that tests write. Containers give 64 MiB; CUDASIM_SHM_MIN overrides it.
constexpr u64 kSmallestFileSystem = 96ull << 20;

// A folder that is removed again and again while we open it is no place to work in.
constexpr int kMostRemovals = 100;

constexpr u64 kTableBytes = sizeof(AllocationSlot) * u64{kMaxAllocations};
constexpr u64 kCountsBytes = u64{kMaxProcesses} * kMaxFunctions * sizeof(u64);
constexpr u64 kRingBytes = sizeof(Record) * u64{kRingRecords};

void* map_file(const std::string& path, u64 bytes, std::string& error) {
  const int fd = open_file(path, error);
  if (fd < 0) return nullptr;
  struct stat status {};
  void* memory = MAP_FAILED;
  if (::fstat(fd, &status) == 0 &&
      (static_cast<u64>(status.st_size) >= bytes || ::ftruncate(fd, static_cast<off_t>(bytes)) == 0))
    memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) error = "cudasim: cannot map " + path + ": " + std::strerror(errno);
  ::close(fd);
  return memory == MAP_FAILED ? nullptr : memory;
}

// The folder that was at `path` when it was looked at is there still.
bool is_at(const std::string& path, const struct stat& before) {
  struct stat now {};
  return ::stat(path.c_str(), &now) == 0 && now.st_dev == before.st_dev && now.st_ino == before.st_ino;
}

bool check_file_system(const std::string& path, std::string& error) {
  struct statvfs status {};
  if (::statvfs(path.c_str(), &status) != 0) return true;
  u64 smallest = kSmallestFileSystem;
  if (const char* text = std::getenv("CUDASIM_SHM_MIN"))
    if (auto bytes = parse_size(text)) smallest = *bytes;
  const u64 bytes = static_cast<u64>(status.f_blocks) * status.f_frsize;
  if (bytes >= smallest) return true;
  error = "cudasim: the file system of " + path + " has " + std::to_string(bytes >> 20) + " MiB, needs " +
          std::to_string(smallest >> 20) + " MiB; enlarge it (containers: --shm-size) or set CUDASIM_DIR";
  return false;
}

void set_a100_latency(const Folder& folder) {
  // Source: the contract's latency anchors (A100); every figure taken with it is labelled "simulated driver".
  struct Anchor {
    const char* name;
    u64 us;
  };
  for (Anchor anchor : {Anchor{"cuMemCreate", 195},
                        {"cuMemMap", 2},
                        {"cuMemSetAccess", 36},
                        {"cuMemUnmap", 26},
                        {"cuMemRelease", 23},
                        {"cuMemAddressReserve", 19},
                        {"cuMemExportToShareableHandle", 40},
                        {"cuMemImportFromShareableHandle", 40}}) {
    FunctionRecord& record = folder.page().functions[folder.function_index(anchor.name)];
    record.delay_ns = anchor.us * 1000;
    record.delay_kind = static_cast<u32>(DelayKind::kSpin);
  }
}

}  // namespace

u64 monotonic_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<u64>(now.tv_sec) * 1000000000 + static_cast<u64>(now.tv_nsec);
}

std::unique_ptr<Folder> Folder::open(const std::string& path, const FolderOptions& options,
                                     std::string& error) {
  bool removed = true;
  std::unique_ptr<Folder> folder;
  for (int i = 0; removed && i < kMostRemovals; i++)
    folder = open_once(path, options, error, removed);
  if (removed) error = "cudasim: the device folder " + path + " is removed again and again";
  return folder;
}

// `removed`: while it was being opened its maker removed it (removal.hpp), and it is to be made anew.
std::unique_ptr<Folder> Folder::open_once(const std::string& path, const FolderOptions& options,
                                          std::string& error, bool& removed) {
  removed = false;
  if (!make_folder(path, kDeviceFolderMode, error) || !check_file_system(path, error)) return nullptr;
  struct stat before {};
  bool good = ::stat(path.c_str(), &before) == 0;
  for (const char* part : {"/alloc", "/proc", "/ghost"})
    good = good && make_folder(path + part, kSubfolderMode, error);
  const int guard = good ? open_file(path + "/making", error) : -1;
  while (guard >= 0 && ::flock(guard, LOCK_EX) != 0 && errno == EINTR) {
  }
  if (!is_at(path, before) || guard < 0) {
    removed = !is_at(path, before);
    if (guard >= 0) ::close(guard);
    return nullptr;
  }
  std::unique_ptr<Folder> folder(new Folder());
  folder->path_ = path;
  good = folder->map(error);
  if (good && folder->page_->magic.load(std::memory_order_acquire) == 0) folder->make(options);
  if (good && (folder->page_->magic != kMagic || folder->page_->version != kLayoutVersion)) {
    error = "cudasim: " + path + " was made by another version; remove it or set CUDASIM_DIR";
    good = false;
  }
  ::close(guard);
  return good ? std::move(folder) : nullptr;
}

Folder::~Folder() {
  const std::pair<void*, u64> mapped[] = {
      {page_, sizeof(ControlPage)}, {slots_, kTableBytes}, {counts_, kCountsBytes}, {ring_, kRingBytes}};
  for (const auto& [memory, bytes] : mapped)
    if (memory) ::munmap(memory, bytes);
}

bool Folder::is_in_place() const {
  struct stat status {};
  return ::stat((path_ + "/control").c_str(), &status) == 0 && status.st_dev == file_system_ &&
         status.st_ino == control_inode_;
}

bool Folder::map(std::string& error) {
  page_ = static_cast<ControlPage*>(map_file(path_ + "/control", sizeof(ControlPage), error));
  if (page_) slots_ = static_cast<AllocationSlot*>(map_file(path_ + "/table", kTableBytes, error));
  if (slots_) counts_ = static_cast<std::atomic<u64>*>(map_file(path_ + "/counts", kCountsBytes, error));
  if (counts_) ring_ = static_cast<Record*>(map_file(path_ + "/ring", kRingBytes, error));
  if (!ring_) return false;
  struct stat status {};
  if (::stat((path_ + "/control").c_str(), &status) == 0) {
    file_system_ = status.st_dev;
    control_inode_ = status.st_ino;
  }
  return true;
}

void Folder::make(const FolderOptions& options) {
  ControlPage& page = *page_;
  pthread_mutexattr_t attributes;
  ::pthread_mutexattr_init(&attributes);
  ::pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  ::pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  ::pthread_mutex_init(&page.lock, &attributes);
  ::pthread_mutexattr_destroy(&attributes);
  page.version = kLayoutVersion;
  page.seed = options.seed;
  page.next_serial = 1;
  page.export_limit = kMaxAllocations;
  page.strict = options.strict;
  page.dirty = options.dirty;
  page.record = options.record;
  page.death_min_ms = options.death_min_ms;
  page.death_max_ms = options.death_max_ms;
  page.break_rule = options.break_rule;
  page.temporary = options.temporary;
  page.lazy_streams = 1;
  page.device_count = static_cast<u32>(std::min<size_t>(options.device_bytes.size(), kMaxDevices));
  for (u32 i = 0; i < page.device_count; i++) {
    DeviceRecord& device = page.devices[i];
    device.total_bytes = options.device_bytes[i];
    const u64 context = std::min<u64>(kLargestContext, device.total_bytes / kContextPart);
    device.context_bytes = options.context_bytes.value_or(context / kGranularity * kGranularity);
    if (::getrandom(device.uuid, sizeof device.uuid, 0) != sizeof device.uuid) std::abort();
    std::snprintf(device.name, sizeof device.name, "cudasim %llu MiB",
                  static_cast<unsigned long long>(device.total_bytes >> 20));
    device.pci_bus = i + 1;
    device.persistence = options.persistence;
    device.vmm_supported = 1;
  }
  if (options.a100_latency) set_a100_latency(*this);
  page.magic.store(kMagic, std::memory_order_release);
}

std::string Folder::allocation_path(u32 slot) const {
  return path_ + "/alloc/" + std::to_string(slot);
}
std::string Folder::process_path(u32 process) const {
  return path_ + "/proc/" + std::to_string(process);
}

bool Folder::breaks(u32 rule) const {
  static const u32 own = [] {
    const char* text = std::getenv("CUDASIM_BREAK");
    return text ? static_cast<u32>(std::strtoul(text, nullptr, 10)) : 0u;
  }();
  return (own ? own : page_->break_rule.load(std::memory_order_relaxed)) == rule;
}

u32 Folder::function_index(const char* name) const {
  auto find = [&] {
    u32 i = 0;
    for (; i < kMaxFunctions - 1 && page_->functions[i].named.load(std::memory_order_acquire); i++)
      if (!std::strncmp(page_->functions[i].name, name, sizeof page_->functions[i].name - 1)) return i;
    return i;
  };
  u32 index = find();
  if (page_->functions[index].named.load(std::memory_order_acquire)) return index;
  Lock lock(*this);
  index = find();
  FunctionRecord& record = page_->functions[index];
  if (record.named.load(std::memory_order_acquire)) return index;
  if (index == kMaxFunctions - 1) {
    std::fprintf(stderr, "cudasim: the table of functions is full at %s: later ones are counted together\n",
                 name);
    name = kOverflowName;
  }
  std::strncpy(record.name, name, sizeof record.name - 1);
  record.named.store(1, std::memory_order_release);
  return index;
}

void Folder::log(RecordKind kind, u32 function, int result, u64 a, u64 b, const char* text) const {
  if (kind == RecordKind::kViolation) {
    page_->violations++;
    std::fprintf(stderr, "cudasim: violation: %s (%#llx, %#llx) in %s, pid %d\n", text,
                 static_cast<unsigned long long>(a), static_cast<unsigned long long>(b),
                 function < kMaxFunctions ? page_->functions[function].name : "?", ::getpid());
  }
  if (kind == RecordKind::kUnimplemented) page_->unimplemented++;
  if (!page_->record.load(std::memory_order_relaxed)) return;
  const u64 position = page_->ring_head.fetch_add(1, std::memory_order_relaxed);
  Record& record = this->record(position);
  // SYNC POINT: the record is nobody's before its first field changes. An exchange, since no store of this
  // thread that follows an acquire may be seen before it.
  record.sequence.exchange(0, std::memory_order_acquire);
  record.time_ns = monotonic_ns();
  record.pid = ::getpid();
  thread_local const int tid = static_cast<int>(::syscall(SYS_gettid));
  record.tid = tid;
  record.kind = static_cast<u32>(kind);
  record.function = function;
  record.result = result;
  record.args[0] = a;
  record.args[1] = b;
  std::snprintf(record.text, sizeof record.text, "%s", text ? text : "");
  record.sequence.store(position + 1, std::memory_order_release);
}

namespace {

// The robust lock's own answer; EBUSY never: it waits, and complains meanwhile.
int take(pthread_mutex_t& lock, const std::atomic<int>& holder, const std::string& path) {
  if (const int error = ::pthread_mutex_trylock(&lock); error != EBUSY) return error;
  for (;;) {
    timespec until{};
    ::clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += kLockPatienceSeconds;
    const int error = ::pthread_mutex_clocklock(&lock, CLOCK_MONOTONIC, &until);
    if (error != ETIMEDOUT) return error;
    std::fprintf(stderr, "cudasim: waiting for the lock of %s, which pid %d holds; is it stopped?\n",
                 path.c_str(), holder.load(std::memory_order_relaxed));
  }
}

}  // namespace

Folder::Lock::Lock(const Folder& folder) : folder_(folder) {
  ControlPage& page = folder.page();
  const int error = take(page.lock, page.lock_holder, folder.path());
  if (error == EOWNERDEAD) {  // a process was killed inside; slots are whole, totals may not be
    ::pthread_mutex_consistent(&page.lock);
    page.lock_recoveries++;
    recompute(folder);
  } else if (error != 0) {
    std::fprintf(stderr, "cudasim: the lock of %s is broken: %s; remove the folder when nobody uses it\n",
                 folder.path().c_str(), std::strerror(error));
    std::abort();
  }
  page.lock_holder.store(::getpid(), std::memory_order_relaxed);
}

Folder::Lock::~Lock() {
  ::pthread_mutex_unlock(&folder_.page().lock);
}

}  // namespace cudasim
