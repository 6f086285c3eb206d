// The simulator's other side, for tests and cudasim-ctl: faults, modes, counters, records, exact census.
//
// Promises: every setting takes effect in processes that are already running. census() is exact: it asks the
// kernel about each allocation file and each process's mappings, not the simulator's own counters.
// Never: calls the simulated driver, or registers as one of its processes. Thread-safe, but for census
// and records, whose results are what held at some moment during the call. Sizes in bytes.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cudasim/scratch_folder.hpp"
#include "cudasim/store/folder.hpp"

namespace cudasim {

// What happens to calls of one function: the `first`th from now (counting from 1) and `count` in all.
struct Fault {
  static constexpr u64 kForEver = ~u64{0};
  int code = 0;  // CUresult returned instead of trying; 0: the call is made
  u64 first = 1;
  u64 count = 1;
  int pid = 0;            // only in this process; 0: in any
  int signal_before = 0;  // e.g. SIGKILL before the effect
  int signal_after = 0;   // e.g. SIGKILL after the effect, before the caller knows
};

struct AllocationInfo {
  u32 slot = 0, device = 0;
  AllocationKind kind = AllocationKind::kVmm;
  u64 serial = 0, bytes = 0, charged_bytes = 0;
  int creator_pid = 0;
  bool referenced = false;     // some handle, mapping or fd is left somewhere (rule 9)
  std::vector<int> mapped_by;  // processes with a data mapping, as /proc/<pid>/maps shows it
};

struct ProcessInfo {
  int pid = 0;
  bool dying = false;     // dead; its memory is not back yet (rule 38)
  u64 context_bytes = 0;  // over all devices
  u64 calls = 0;          // driver calls so far
};

struct DeviceInfo {
  u64 total_bytes = 0, used_bytes = 0, stranger_bytes = 0, context_bytes = 0;
  std::string uuid;  // "GPU-xxxxxxxx-..."
};

struct CensusReport {
  std::vector<DeviceInfo> devices;
  std::vector<AllocationInfo> allocations;
  std::vector<ProcessInfo> processes;
  u64 physical_bytes = 0;    // of allocations whose memory is not given back
  u64 referenced_bytes = 0;  // of those with a live reference; invariant (a): equal when no death is pending
  u64 overlap_bytes = 0;     // of allocations mapped for data by more than one process
};

struct CallRecord {
  std::string function;
  RecordKind kind = RecordKind::kCall;
  int pid = 0, tid = 0, result = 0;
  u64 time_ns = 0, a = 0, b = 0;
  std::string text;
};

class Control {
 public:
  // Makes or opens the folder at `path`. nullptr and one line in `error` when that fails.
  static std::unique_ptr<Control> open(const std::string& path, const FolderOptions& options,
                                       std::string& error);

  const std::string& path() const { return folder_->path(); }
  const Folder& folder() const { return *folder_; }

  // Faults and latency. `function` is a name without version suffix: "cuMemAlloc", "nvmlInit".
  void set_fault(const std::string& function, const Fault& fault);
  void clear_fault(const std::string& function);
  void clear_faults();
  void set_delay(const std::string& function, DelayKind kind, u64 ns);

  // Modes.
  void set_strict(bool on) { page().strict = on; }
  void set_dirty(bool on) { page().dirty = on; }
  void set_record(bool on) { page().record = on; }
  void set_death_ms(u32 low, u32 high);
  void set_persistence(u32 device, bool on) { page().devices[device].persistence = on; }
  void set_lost(u32 device, bool on) { page().devices[device].lost = on; }
  void set_vmm_supported(u32 device, bool on) { page().devices[device].vmm_supported = on; }
  void set_stranger_bytes(u32 device, u64 bytes) { page().devices[device].stranger_bytes = bytes; }
  void set_export_limit(u32 objects) { page().export_limit = objects; }
  void set_break(u32 rule) { page().break_rule = rule; }
  void set_lazy_streams(bool on) { page().lazy_streams = on; }
  // Every context of `pid` fails from now on with `code` (700); 0 ends it for new contexts.
  void set_sticky(int pid, int code);
  void tick() { page().ticks++; }
  void advance_virtual_clock(u64 ns) { page().virtual_now_ns += ns; }

  // Counters and records.
  u64 calls(const std::string& function) const;
  u64 calls(const std::string& function, int pid) const;
  u64 successes(const std::string& function) const;
  u64 calls_of(int pid) const;  // of all functions
  u64 violations() const { return page().violations; }
  u64 unimplemented() const { return page().unimplemented; }
  u64 record_position() const { return page().ring_head; }
  // Records from `position` on that the ring still has and that are complete, oldest first.
  std::vector<CallRecord> records(u64 position) const;

  // Census.
  CensusReport census() const;
  u64 used_bytes(u32 device) const;  // as the device would report it now, strangers included
  // No allocation is referenced and no process's memory is on its way back. False after `timeout_ms`.
  bool wait_no_references(int timeout_ms) const;
  bool wait_used(u32 device, u64 bytes, int timeout_ms) const;
  static bool wait(const std::function<bool()>& done, int timeout_ms);

 private:
  explicit Control(std::unique_ptr<Folder> folder) : folder_(std::move(folder)) {}
  ControlPage& page() const { return folder_->page(); }
  FunctionRecord& function(const std::string& name) const;
  std::unique_ptr<Folder> folder_;
};

// A simulated device of its own for one test, in a ScratchFolder.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(const FolderOptions& options = {});
  const std::string& path() const { return folder_.path(); }
  Control& control() const { return *control_; }
  Control* operator->() const { return control_.get(); }

 private:
  ScratchFolder folder_;
  std::unique_ptr<Control> control_;
};

// The census as one line of JSON.
std::string to_json(const CensusReport& report);

}  // namespace cudasim
