// What all copies have in common: two sides, each device or host memory, of width x height x depth bytes.
//
// A copy that involves pageable host memory reads it before the call returns, or waits until it is written;
// with pinned memory, and between device addresses, it runs when its stream gets there. An address that no
// one knows is codes::kUnknownPointer at the call; one that is not mapped when the copy runs is the sticky
// 700 (rule 19).
#pragma once
#include "cudasim/driver/submit.hpp"

namespace cudasim {

struct Side {
  CUdeviceptr address = 0;  // device address, or a host pointer
  u64 pitch = 0;            // bytes from row to row
  u64 slice = 0;            // bytes from plane to plane
};

struct Transfer {
  const char* what = "";
  Side to = {}, from = {};
  u64 width = 0, height = 1, depth = 1;
};

enum class Wait { kNo, kYes };

// kYes: the forms without Async, on the default stream; `handle` is not looked at.
CUresult transfer(const Transfer& copy, CUstream handle, Default meaning, Wait wait);

inline CUdeviceptr as_address(const void* pointer) {
  return reinterpret_cast<CUdeviceptr>(pointer);
}

}  // namespace cudasim
