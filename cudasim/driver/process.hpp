// The simulated driver's state in this process: its folder, its place there, whether cuInit was called.
//
// Promises: attaches once, at the first driver call. A forked child of an initialised process never gets
// past it (rule 37); a child of one that did not call cuInit starts afresh.
// Never: an fd that stays open.
#pragma once
#include "cudasim/driver/cuda_api.hpp"
#include "cudasim/store/allocation.hpp"
#include "cudasim/store/census.hpp"
#include "cudasim/store/folder.hpp"

namespace cudasim {

class Process {
 public:
  // The one of this process; attaches at first use.
  static Process& get();

  const Folder* folder() const { return folder_; }  // nullptr: attach_error() says why
  u32 index() const { return index_; }
  ProcessRecord& record() const { return folder_->page().processes[index_]; }
  ControlPage& page() const { return folder_->page(); }
  CUresult attach_error() const { return attach_error_; }

  // cuInit's effect: rules 1 and 24.
  CUresult initialise();
  bool initialised() const { return initialised_.load(std::memory_order_acquire); }
  // This is a forked child of an initialised process.
  bool forked_child() const;

 private:
  Process() = default;
  void attach();
  const Folder* folder_ = nullptr;
  u32 index_ = 0;
  CUresult attach_error_ = CUDA_SUCCESS;
  std::atomic<bool> initialised_{false};
};

// True when the simulator was told to break contract rule `rule` (CUDASIM_BREAK of this process, else of
// the folder). Used where a rule is enforced: `if (!break_rule(12) && offset != 0) return ...`.
bool break_rule(u32 rule);

inline const Folder& folder() {
  return *Process::get().folder();
}
inline ControlPage& control() {
  return Process::get().page();
}
inline bool known_device(int device) {
  return device >= 0 && static_cast<u32>(device) < control().device_count;
}
inline DeviceRecord& device_record(int device) {
  return control().devices[device];
}

}  // namespace cudasim
