#include "cudasim/store/backing_file.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace cudasim {
namespace {

constexpr u8 kCanary = 0xCA;

// Memory nobody had before shows a canary at its ends and in its middle; whole chunks are never touched.
void write_canary(int fd, u64 bytes) {
  u8 canary[64];
  std::memset(canary, kCanary, sizeof canary);
  for (u64 offset : {u64{0}, bytes / 2, bytes - sizeof canary})
    if (::pwrite(fd, canary, sizeof canary, static_cast<off_t>(offset)) < 0) return;
}

// Dirty mode: the file of memory that was given back, of the same size when there is one (rule 7).
std::string take_ghost(const Folder& folder, u64 bytes) {
  DIR* entries = ::opendir(folder.ghost_folder().c_str());
  if (!entries) return {};
  std::string found;
  u64 found_bytes = 0, best_serial = 0;
  while (dirent* entry = ::readdir(entries)) {
    char* end = nullptr;
    const u64 size = std::strtoull(entry->d_name, &end, 10);
    if (*end != '-') continue;
    const u64 serial = std::strtoull(end + 1, nullptr, 10);
    const bool better = (size == bytes) != (found_bytes == bytes) ? size == bytes : serial > best_serial;
    if (!found.empty() && !better) continue;
    found = entry->d_name;
    found_bytes = size;
    best_serial = serial;
  }
  ::closedir(entries);
  if (found.empty()) return {};
  folder.page().ghost_bytes -= found_bytes;
  return folder.ghost_folder() + "/" + found;
}

}  // namespace

int make_backing_file(const Folder& folder, u32 slot, u64 bytes) {
  const std::string path = folder.allocation_path(slot);
  ::unlink(path.c_str());  // of a creator that was killed before it had the slot
  const bool dirty = folder.page().dirty && !folder.breaks(7);
  const std::string ghost = dirty ? take_ghost(folder, bytes) : std::string();
  const bool reused = !ghost.empty() && ::rename(ghost.c_str(), path.c_str()) == 0;
  int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0) return -1;
  (void)::fchmod(fd, 0666);
  if (::ftruncate(fd, static_cast<off_t>(bytes)) != 0 || ::flock(fd, LOCK_SH | LOCK_NB) != 0) {
    ::close(fd);
    ::unlink(path.c_str());
    return -1;
  }
  if (dirty && !reused) write_canary(fd, bytes);
  return fd;
}

void end_backing_file(const Folder& folder, u32 index) {
  const AllocationSlot& slot = folder.slot(index);
  ControlPage& page = folder.page();
  const std::string path = folder.allocation_path(index);
  const bool keep = page.dirty && page.ghost_bytes + slot.bytes <= page.devices[slot.device].total_bytes;
  const std::string ghost =
      folder.ghost_folder() + "/" + std::to_string(slot.bytes) + "-" + std::to_string(slot.serial);
  if (keep && ::rename(path.c_str(), ghost.c_str()) == 0)
    page.ghost_bytes += slot.bytes;
  else
    ::unlink(path.c_str());
}

}  // namespace cudasim
