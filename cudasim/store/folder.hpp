// A device folder, opened: finds or makes it, maps its shared memory, holds its lock.
//
// Promises: whoever comes first makes the folder from CUDASIM_DEVICES and friends; everyone later sees the
// same devices, whatever their own variables say. Any uid may use it (parts.hpp).
// Never: keeps an fd open. All methods are safe from any thread.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cudasim/store/layout.hpp"

namespace cudasim {

// What a folder is made with. `from_environment` reads CUDASIM_DEVICES ("80GiB" or "8GiB,8GiB"),
// CUDASIM_CONTEXT (bytes of one context), CUDASIM_SEED, CUDASIM_STRICT, CUDASIM_DIRTY, CUDASIM_RECORD,
// CUDASIM_DEATH_MS ("0-500" or "0"), CUDASIM_PERSISTENCE, CUDASIM_BREAK, CUDASIM_LATENCY ("A100").
struct FolderOptions {
  std::vector<u64> device_bytes{80ull << 30};
  std::optional<u64> context_bytes;  // default: min(512 MiB, total / 32)
  u64 seed = 1;
  bool strict = true;
  bool dirty = false;
  bool record = true;
  u32 death_min_ms = 0, death_max_ms = 0;
  bool persistence = true;
  u32 break_rule = 0;
  bool a100_latency = false;
  bool temporary = false;  // CUDASIM_TEMPORARY: of the process, not of the folder alone

  // nullopt and a line in `error` when a variable cannot be read.
  static std::optional<FolderOptions> from_environment(std::string& error);
};

// "80GiB", "512MiB", "2097152" -> bytes; nullopt otherwise.
std::optional<u64> parse_size(const std::string& text);

// CUDASIM_DIR, else /dev/shm/cudasim-<uid>.
std::string default_folder();

class Folder {
 public:
  // Opens `path`, making it with `options` when it does not exist. nullptr and one line in `error` when
  // it cannot be made, is another version's, or its file system is too small. The driver and NVML release
  // it: other threads of the program may be inside a call until the process ends.
  static std::unique_ptr<Folder> open(const std::string& path, const FolderOptions& options,
                                      std::string& error);
  ~Folder();  // unmaps; the device and its files stay
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const std::string& path() const { return path_; }
  ControlPage& page() const { return *page_; }
  AllocationSlot& slot(u32 index) const { return slots_[index]; }
  Record& record(u64 position) const { return ring_[position % kRingRecords]; }
  std::atomic<u64>& count(u32 process, u32 function) const {
    return counts_[static_cast<u64>(process) * kMaxFunctions + function];
  }
  std::string allocation_path(u32 slot) const;
  std::string process_path(u32 process) const;
  std::string ghost_folder() const { return path_ + "/ghost"; }
  // The folder at path() is the one that is mapped: it was not removed and made anew.
  bool is_in_place() const;
  u64 file_system() const { return file_system_; }  // st_dev of its files

  // CUDASIM_BREAK of this process, else of the folder, names this contract rule.
  bool breaks(u32 rule) const;

  // Index of the function called `name` (no version suffix), added when it is new. Where the table is full,
  // all further names share its last record, "(table full)"; one line on stderr says so.
  u32 function_index(const char* name) const;

  // Appends to the ring (when recording) and, for violations, counts and prints one line on stderr.
  void log(RecordKind kind, u32 function, int result, u64 a, u64 b, const char* text) const;

  // The folder's lock. A holder that was killed leaves the totals to be recomputed by the next one; a holder
  // that is stopped (SIGSTOP) keeps everybody waiting, and whoever waits long says in a line for whom.
  class Lock {
   public:
    explicit Lock(const Folder& folder);
    ~Lock();
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

   private:
    const Folder& folder_;
  };

 private:
  Folder() = default;
  static std::unique_ptr<Folder> open_once(const std::string& path, const FolderOptions& options,
                                           std::string& error, bool& removed);
  bool map(std::string& error);
  void make(const FolderOptions& options);
  std::string path_;
  u64 file_system_ = 0, control_inode_ = 0;
  ControlPage* page_ = nullptr;
  AllocationSlot* slots_ = nullptr;
  Record* ring_ = nullptr;
  std::atomic<u64>* counts_ = nullptr;
};

// CLOCK_MONOTONIC, nanoseconds.
u64 monotonic_ns();

}  // namespace cudasim
