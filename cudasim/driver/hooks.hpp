// Where streams plug in. The memory side calls these; driver/ files about streams set them in a static
// initialiser. Unset hooks mean "no work is ever pending".
#pragma once
#include "cudasim/driver/context.hpp"

namespace cudasim {

struct Function;

struct Hooks {
  // Runs everything enqueued in `context` to completion; the first error of that work.
  CUresult (*synchronise)(Context& context) = nullptr;
  // True when work that may still run touches [address, address + bytes).
  bool (*pending)(CUdeviceptr address, u64 bytes) = nullptr;
  // Before the effect of every call that needs the driver: rule 36's answer, or CUDA_SUCCESS.
  CUresult (*capture_check)(const Function& function) = nullptr;
  // `context` is about to die: drop its streams, events, pools.
  void (*context_gone)(Context& context) = nullptr;
  // cuMemFree of an address that came from cuMemAllocAsync; nullptr address space entry: not ours.
  CUresult (*free_async)(CUdeviceptr address, bool& handled) = nullptr;
  // Orders a synchronous copy or memset behind the work it must wait for (legacy default stream).
  CUresult (*before_synchronous_copy)(Context& context) = nullptr;
};

Hooks& hooks();

// Rule 18 and the pending-work check: reports `what` when [address, address + bytes) may be in use.
void check_pending(CUdeviceptr address, u64 bytes, const char* what);

}  // namespace cudasim
