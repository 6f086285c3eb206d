#include "cudasim/driver/process.hpp"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "cudasim/driver/codes.hpp"
#include "cudasim/store/removal.hpp"

namespace cudasim {
namespace {

// A page that a forked child finds empty: the only witness of a fork that needs no system call.
std::atomic<u32>* make_witness() {
  void* page = ::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED || ::madvise(page, kPage, MADV_WIPEONFORK) != 0) std::abort();
  return static_cast<std::atomic<u32>*>(page);
}
std::atomic<u32>* witness = make_witness();

bool real_device_present() {
  const char* force = std::getenv("CUDASIM_FORCE");
  if (force && !std::strcmp(force, "1")) return false;
  const char* root = std::getenv("CUDASIM_PROBE_ROOT");  // tests show us a machine with a device
  for (const char* path : {"/proc/driver/nvidia/version", "/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg"}) {
    struct stat status {};
    if (::stat((std::string(root ? root : "") + path).c_str(), &status) == 0) return true;
  }
  return false;
}

Process* attached = nullptr;
std::mutex attach_mutex;

}  // namespace

Process& Process::get() {
  static std::atomic<Process*> current{nullptr};
  Process* process = current.load(std::memory_order_acquire);
  const bool child = process && !witness->load(std::memory_order_relaxed);
  if (process && (!child || process->initialised())) return *process;
  std::lock_guard guard(attach_mutex);
  // Another thread of this process was faster; a child's first two calls may come from two threads as well.
  if (Process* other = current.load(std::memory_order_relaxed); other != process) return *other;
  process = new Process;
  process->attach();
  witness->store(1, std::memory_order_relaxed);
  attached = process;
  current.store(process, std::memory_order_release);
  return *process;
}

void Process::attach() {
  if (real_device_present()) {
    std::fprintf(stderr,
                 "cudasim: a real NVIDIA device is present; this simulated driver refuses to run. "
                 "Remove it from the library path, or set CUDASIM_FORCE=1\n");
    attach_error_ = codes::kRealDevicePresent;
    return;
  }
  std::string error;
  auto options = FolderOptions::from_environment(error);
  // Again where its last user so far removed it in between.
  for (bool again = options.has_value(); again;) {
    std::unique_ptr<Folder> opened = Folder::open(default_folder(), *options, error);
    index_ = opened ? register_process(*opened, options->temporary, error) : kMaxProcesses;
    again = opened && index_ == kMaxProcesses && !opened->is_in_place();
    if (index_ != kMaxProcesses) folder_ = opened.release();
  }
  if (folder_) return;
  std::fprintf(stderr, "%s\n", error.c_str());
  attach_error_ = codes::kFolderUnusable;
}

CUresult Process::initialise() {
  if (attach_error_ != CUDA_SUCCESS) return attach_error_;
  settle(*folder_, Census::kQuick);  // rule 24: what an idle device lost is gone before we are a user
  record().initialised = 1;
  initialised_.store(true, std::memory_order_release);
  return CUDA_SUCCESS;
}

bool Process::forked_child() const {
  return !witness->load(std::memory_order_relaxed);
}

bool break_rule(u32 rule) {
  return folder().breaks(rule);
}

namespace {

// A process that runs its exit handlers gives its memory back without delay; one that is killed does not.
struct ExitMark {
  ~ExitMark() {
    if (!attached || !attached->folder() || !witness->load(std::memory_order_relaxed)) return;
    attached->record().clean_exit = 1;
    if (attached->page().temporary) remove_if_last(*attached->folder(), attached->index());
  }
} exit_mark;

}  // namespace

}  // namespace cudasim
