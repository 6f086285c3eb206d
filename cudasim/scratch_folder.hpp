// A folder of its own under /dev/shm for one test, and the end of those that killed tests left there.
//
// Promises: removed with everything in it at the end; where its process was killed, the next ScratchFolder of
// the same user removes it. Never: takes a folder away from a process that lives: its maker, a forked child
// of it, or a process of a simulated device in it. Includes nothing but the system.
#pragma once
#include <sys/types.h>

#include <string>

namespace cudasim {

class ScratchFolder {
 public:
  // /dev/shm/cudasim-scratch-XXXXXX, mode 0777. Aborts with one line where it cannot be made.
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
  pid_t maker_;
  void* owner_ = nullptr;  // a mapping that keeps the lock, and costs no fd
};

}  // namespace cudasim
