// The shared memory of a device folder: what every process that uses one simulated device has mapped.
//
//   DIR/control   ControlPage: devices, modes, faults, processes, counters        (this file's first struct)
//   DIR/table     AllocationSlot[kMaxAllocations], sparse: one slot per physical allocation
//   DIR/counts    u64[kMaxProcesses][kMaxFunctions], sparse: calls per process and function
//   DIR/ring      Record[kRingRecords]: the last driver calls of all processes
//   DIR/alloc/N   the bytes of allocation N; its life-time is the flock(LOCK_SH) of every open description
//   DIR/proc/N    empty; process N keeps LOCK_SH on it through a mapping that a forked child does not get
//
// Promises: a slot, a process and a function record change state by one atomic store, so that a process
// killed anywhere leaves a table from which the totals can be recomputed (store/census.cpp does).
// Never: a pointer in here; the folder is mapped at different addresses.
#pragma once
#include <pthread.h>

#include <atomic>
#include <cstdint>

namespace cudasim {

using u8 = std::uint8_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;

inline constexpr u64 kMagic = 0x31306d6973414443;  // "CDAsim01"
inline constexpr u32 kLayoutVersion = 1;
inline constexpr u32 kMaxDevices = 8;
inline constexpr u32 kMaxProcesses = 1024;
inline constexpr u32 kMaxFunctions = 1024;
inline constexpr u32 kMaxAllocations = 524288;  // rule 39: what an export table of a real system holds
inline constexpr u32 kRingRecords = 65536;
inline constexpr u64 kPage = 4096;
inline constexpr u64 kGranularity = 2u << 20;  // rule 2, bytes

// One simulated device. Sizes in bytes.
struct DeviceRecord {
  u64 total_bytes;
  u64 context_bytes;  // what one context costs
  u8 uuid[16];
  char name[64];
  u32 pci_bus;
  std::atomic<u32> persistence;     // rule 24; 1: on
  std::atomic<u32> lost;            // device lost: every call that needs the device fails
  std::atomic<u32> vmm_supported;   // attribute 102, 103 (rule 43: an attribute may lie)
  std::atomic<u64> used_bytes;      // allocations + contexts; strangers not included
  std::atomic<u64> stranger_bytes;  // taken by "someone else" (control)
};

enum class DelayKind : u32 { kNone, kSleep, kSpin, kVirtual };

// What a test may do to one function. `armed` is stored last; every field may change while processes run.
struct FaultRecord {
  std::atomic<u32> armed;
  std::atomic<int> pid;            // 0: any process
  std::atomic<int> code;           // CUresult to return instead of trying; 0: none
  std::atomic<u64> first;          // the nth call (from 1) since arming that is hit
  std::atomic<u64> count;          // how many calls from there; ~0: for ever
  std::atomic<int> signal_before;  // raised before the effect, e.g. SIGKILL; 0: none
  std::atomic<int> signal_after;   // raised after the effect, before the call returns
  std::atomic<u64> seen;           // calls since arming
};

// One driver or NVML function, found by name without version suffix ("cuMemAlloc").
struct FunctionRecord {
  std::atomic<u32> named;  // 1 once `name` is valid
  char name[60];
  std::atomic<u64> called;  // calls that reached the simulator
  std::atomic<u64> did;     // calls that returned CUDA_SUCCESS
  FaultRecord fault;
  std::atomic<u32> delay_kind;  // DelayKind
  std::atomic<u64> delay_ns;    // per call, or per handle for cuMemSetAccess and cuMemUnmap
};

enum class ProcessState : u32 { kFree, kLive, kDying };

// One process that called the simulated driver. kDying: found dead, its memory is not back yet (rule 38).
struct ProcessRecord {
  std::atomic<u32> state;
  int pid;  // in its own PID namespace
  u32 uid;
  u64 pid_namespace;               // inode of /proc/self/ns/pid; 0 unknown
  u64 serial;                      // unique over the folder's life
  std::atomic<u32> initialised;    // cuInit succeeded
  std::atomic<u32> clean_exit;     // its exit handlers ran
  std::atomic<int> sticky_code;    // set by control: every context of it fails with this code
  std::atomic<u64> release_at_ns;  // kDying: CLOCK_MONOTONIC time its memory comes back
  std::atomic<u64> context_bytes[kMaxDevices];
};

enum class SlotState : u32 { kFree, kLive };
enum class AllocationKind : u32 { kVmm, kLinear, kManaged, kPool, kHost };

// One physical allocation. `serial` and `inode` tell a slot from its next use and an fd from a forged one.
struct AllocationSlot {
  std::atomic<u32> state;  // SlotState, stored last when made and first when reaped
  u32 kind;                // AllocationKind
  u32 device;
  u32 next_free;  // free list, slot + 1; 0 ends it
  u64 serial;
  u64 inode;
  u64 bytes;          // size of the file
  u64 charged_bytes;  // of the device; 0 for host memory
  int creator_pid;
  u32 creator_process;              // index of its ProcessRecord
  u64 creator_serial;               // its ProcessRecord::serial
  u32 location_type, location_id;   // CUmemLocation
  u32 handle_types;                 // CUmemAllocationHandleType asked for at creation
  u32 compression, rdma, usage;     // CUmemAllocationProp::allocFlags
  std::atomic<u32> exported;        // 1 once an fd was made (rule 39)
  std::atomic<u32> ipc_opens;       // live legacy-IPC imports (rule 35)
  std::atomic<u32> handles;         // unreleased VMM handles of all processes, those of the killed included
  std::atomic<u32> creator_access;  // CUmemAccess_flags its creator set last, + 1; 0: never (rule 16)
  std::atomic<u32> freed;           // its exporter called cuMemFree
  std::atomic<u64> holders[kMaxProcesses / 64];  // processes with a handle or mapping
};

enum class RecordKind : u32 { kCall, kViolation, kUnimplemented };

// One entry of the ring; valid when `sequence` equals its position + 1.
struct Record {
  std::atomic<u64> sequence;
  u64 time_ns;  // CLOCK_MONOTONIC
  int pid, tid;
  u32 kind;      // RecordKind
  u32 function;  // index of its FunctionRecord
  int result;    // CUresult
  u32 pad;
  u64 args[2];
  char text[40];  // violations: which
};

struct ControlPage {
  std::atomic<u64> magic;  // stored last by the creator
  u32 version;
  u32 device_count;
  u64 seed;
  pthread_mutex_t lock;  // robust, shared: the folder's lock (create, reap, register)
  std::atomic<u64> next_serial;
  std::atomic<u32> slot_high_water;  // slots at and above were never used
  std::atomic<u32> slot_free_list;   // slot + 1
  std::atomic<u32> live_slots;
  std::atomic<u32> limbo;  // 1: some allocation lives by fds alone, its end makes no driver call
  std::atomic<u32> exported_objects;
  std::atomic<u32> export_limit;  // rule 39; default kMaxAllocations
  std::atomic<u32> process_hint;  // where the search for a free process record starts
  std::atomic<u32> process_high_water;

  std::atomic<u32> strict;        // host access to device memory faults; double release aborts
  std::atomic<u32> dirty;         // fresh memory shows its last owner's bytes
  std::atomic<u32> record;        // write the ring
  std::atomic<u32> death_min_ms;  // rule 38: a killed process's memory is back after a seeded delay
  std::atomic<u32> death_max_ms;
  std::atomic<u32> break_rule;      // CUDASIM_BREAK of the folder's creator; 0: none
  std::atomic<u32> lazy_streams;    // 1: work completes at synchronise, query or tick (default)
  std::atomic<u64> virtual_now_ns;  // the virtual clock; moved by kVirtual delays, waits and ticks
  std::atomic<u64> ticks;           // moved by control: all work enqueued before completes
  std::atomic<u64> violations;
  std::atomic<u64> unimplemented;
  std::atomic<u64> ring_head;

  std::atomic<u64> ghost_bytes;      // dirty mode: files kept of memory that was given back
  std::atomic<u64> lock_recoveries;  // times a killed process left the lock held
  std::atomic<int> lock_holder;      // pid that took the lock last, in its own PID namespace
  std::atomic<u32> temporary;        // 1: only processes with CUDASIM_TEMPORARY have used the folder
  std::atomic<u64> spare[31];
  DeviceRecord devices[kMaxDevices];
  ProcessRecord processes[kMaxProcesses];
  FunctionRecord functions[kMaxFunctions];
};

static_assert(std::atomic<u64>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

}  // namespace cudasim
