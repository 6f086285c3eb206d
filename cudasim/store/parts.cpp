#include "cudasim/store/parts.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace cudasim {
namespace {

constexpr const char* kUnfinished = ".making-XXXXXX";
constexpr mode_t kFileMode = 0666;

bool put_in_place(const std::string& made, const std::string& path) {
  return ::renameat2(AT_FDCWD, made.c_str(), AT_FDCWD, path.c_str(), RENAME_NOREPLACE) == 0;
}

bool is_folder(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

}  // namespace

bool make_folder(const std::string& path, mode_t mode, std::string& error) {
  if (is_folder(path)) return true;
  std::string unfinished = path + kUnfinished;
  int failed = 0;
  if (::mkdtemp(unfinished.data()) == nullptr) {
    failed = errno;
  } else if (::chmod(unfinished.c_str(), mode) == 0 && put_in_place(unfinished, path)) {
    return true;
  } else {
    failed = errno;
    ::rmdir(unfinished.c_str());
    if (failed == EEXIST && is_folder(path)) return true;  // somebody was faster
  }
  error = "cudasim: cannot make the device folder " + path + ": " + std::strerror(failed) +
          "; set CUDASIM_DIR to a folder on a tmpfs";
  return false;
}

// Opened without O_CREAT first: fs.protected_regular refuses that for another user's file in a sticky folder.
int open_file(const std::string& path, std::string& error) {
  for (;;) {
    int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (fd >= 0) return fd;
    int failed = errno;
    std::string unfinished = path + kUnfinished;
    if (failed == ENOENT && (fd = ::mkostemp(unfinished.data(), O_CLOEXEC)) >= 0) {
      if (::fchmod(fd, kFileMode) == 0 && put_in_place(unfinished, path)) return fd;
      failed = errno;
      ::close(fd);
      ::unlink(unfinished.c_str());
      if (failed == EEXIST) continue;  // somebody was faster
    }
    error = "cudasim: cannot open " + path + ": " + std::strerror(failed);
    return -1;
  }
}

}  // namespace cudasim
