// One process's reference to one physical allocation: a one-page PROT_NONE mapping of its file.
//
// The mapping keeps the open file description and with it the lock that keeps the bytes alive; it costs no
// fd. A forked child inherits it, as it inherits a device's fds (rule 37). Sizes in bytes. Thread-safe.
#pragma once
#include <memory>

#include "cudasim/store/folder.hpp"

namespace cudasim {

enum class StoreError { kNone, kNoMemory, kNotAnAllocation, kExportTableFull, kSystem };

// What a new allocation is; see AllocationSlot.
struct AllocationSpec {
  AllocationKind kind = AllocationKind::kVmm;
  u32 device = 0;
  u64 bytes = 0;            // whole multiple of kGranularity
  bool on_device = true;    // false: host memory, charged to nobody
  bool may_exceed = false;  // managed memory: charged only as far as it fits (rule 42)
  u32 location_type = 0, location_id = 0, handle_types = 0, compression = 0, rdma = 0, usage = 0;
};

class Allocation {
 public:
  // Rule 6: kNoMemory only after an exact count found too little room.
  static std::shared_ptr<Allocation> create(const Folder& folder, u32 process, const AllocationSpec& spec,
                                            StoreError& error);
  // Rule 22: a reference through `fd`, which stays the caller's.
  static std::shared_ptr<Allocation> import(const Folder& folder, u32 process, int fd, StoreError& error);
  // By slot, while somebody holds it (legacy IPC).
  static std::shared_ptr<Allocation> open(const Folder& folder, u32 process, u32 slot, u64 serial,
                                          StoreError& error);
  ~Allocation();
  Allocation(const Allocation&) = delete;
  Allocation& operator=(const Allocation&) = delete;

  // Rule 20: a new close-on-exec fd with its own lock; -1 and `error` otherwise.
  int export_fd(StoreError& error) const;

  // A new mapping of the first `bytes` bytes: at `address` (replacing what is there) or, when 0, anywhere.
  // `protection` as of mmap. Not inherited by fork. nullptr when the kernel refuses.
  void* map(u64 bytes, void* address, int protection) const;

  // Punches holes: the range reads as zeros and costs nothing.
  bool zero(u64 offset, u64 bytes) const;

  // Rule 9, broken on purpose: the device takes the bytes for free while they are in use.
  void give_back_charge() const;

  u32 slot() const { return slot_; }
  u64 serial() const { return serial_; }
  u64 bytes() const { return bytes_; }
  AllocationSlot& record() const { return folder_.slot(slot_); }

 private:
  Allocation(const Folder& folder, u32 process, u32 slot, u64 serial, u64 bytes, void* page);
  static std::shared_ptr<Allocation> adopt(const Folder& folder, u32 process, int fd, u32 slot,
                                           StoreError& error);
  const Folder& folder_;
  u32 process_, slot_;
  u64 serial_, bytes_;
  void* page_;
};

}  // namespace cudasim
