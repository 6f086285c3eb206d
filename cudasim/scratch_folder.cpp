#include "cudasim/scratch_folder.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>

namespace cudasim {
namespace {

namespace fs = std::filesystem;

constexpr const char* kParent = "/dev/shm";
constexpr const char* kMaking = "cudasim-making-";  // until its lock is taken
constexpr const char* kMade = "cudasim-scratch-";
constexpr const char* kOwner = "/owner";     // locked by the maker
constexpr const char* kProcesses = "/proc";  // of a device folder: each locked by its process
constexpr std::time_t kMakingSeconds = 60;   // a folder that is still being made after this was given up
constexpr std::size_t kOwnerBytes = 4096;

// True where some open file description, a mapping's included, has the file's lock.
bool locked(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return errno != ENOENT;
  const bool held = ::flock(fd, LOCK_EX | LOCK_NB) != 0;
  ::close(fd);
  return held;
}

// A device folder may be the scratch folder or lie in it.
bool in_use(const std::string& folder) {
  if (locked(folder + kOwner)) return true;
  std::error_code failed;
  for (fs::recursive_directory_iterator at(folder, failed), end; !failed && at != end; at.increment(failed)) {
    const std::string inside = at->path().parent_path().string();
    if (inside.ends_with(kProcesses) && locked(at->path().string())) return true;
  }
  return static_cast<bool>(failed);
}

bool given_up(const fs::path& folder) {
  struct stat status {};
  if (::lstat(folder.c_str(), &status) != 0 || !S_ISDIR(status.st_mode) || status.st_uid != ::geteuid())
    return false;
  const std::string name = folder.filename().string();
  if (name.starts_with(kMaking)) return std::time(nullptr) - status.st_mtime > kMakingSeconds;
  return name.starts_with(kMade) && !in_use(folder.string());
}

void remove_leftovers() {
  std::error_code ignored;
  for (fs::directory_iterator at(kParent, ignored), end; !ignored && at != end; at.increment(ignored)) {
    std::error_code failed;
    if (given_up(at->path())) fs::remove_all(at->path(), failed);
  }
}

[[noreturn]] void give_up(const std::string& path) {
  std::fprintf(stderr, "cudasim: no folder %s for this test: %s\n", path.c_str(), std::strerror(errno));
  std::abort();
}

}  // namespace

ScratchFolder::ScratchFolder() : maker_(::getpid()) {
  remove_leftovers();
  std::string making = std::string(kParent) + "/" + kMaking + "XXXXXX";
  if (::mkdtemp(making.data()) == nullptr || ::chmod(making.c_str(), 0777) != 0) give_up(making);
  const int fd = ::open((making + kOwner).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0 || ::flock(fd, LOCK_SH | LOCK_NB) != 0) give_up(making);
  owner_ = ::mmap(nullptr, kOwnerBytes, PROT_NONE, MAP_SHARED, fd, 0);
  if (owner_ == MAP_FAILED) give_up(making);
  ::close(fd);
  path_ = std::string(kParent) + "/" + kMade + making.substr(making.size() - std::strlen("XXXXXX"));
  if (::rename(making.c_str(), path_.c_str()) != 0) give_up(path_);
}

ScratchFolder::~ScratchFolder() {
  if (::getpid() != maker_) return;  // a forked child that runs its parent's exit handlers
  std::error_code ignored;
  fs::remove_all(path_, ignored);
  ::munmap(owner_, kOwnerBytes);
}

}  // namespace cudasim
