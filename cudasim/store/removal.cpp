#include "cudasim/store/removal.hpp"

#include <sys/file.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "cudasim/store/census.hpp"
#include "cudasim/store/parts.hpp"

namespace cudasim {
namespace {

bool in_use(const Folder& folder, u32 process) {
  const ControlPage& page = folder.page();
  for (u32 i = 0; i < page.process_high_water; i++)
    if (i != process && page.processes[i].state != static_cast<u32>(ProcessState::kFree)) return true;
  return page.live_slots != 0;
}

}  // namespace

void remove_if_last(const Folder& folder, u32 process) {
  std::string ignored;
  const int guard = open_file(folder.path() + "/making", ignored);
  if (guard < 0) return;
  const std::string removed = folder.path() + ".removed-" + std::to_string(::getpid());
  bool ours = false;
  if (::flock(guard, LOCK_EX) == 0) {  // nobody is opening it
    const Folder::Lock lock(folder);   // and nobody registers
    settle_locked(folder, Census::kExact);
    ours = folder.page().temporary && folder.is_in_place() && !in_use(folder, process) &&
           ::rename(folder.path().c_str(), removed.c_str()) == 0;
  }
  ::close(guard);
  std::error_code failed;
  if (ours) std::filesystem::remove_all(removed, failed);
}

}  // namespace cudasim
