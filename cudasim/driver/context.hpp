// CUDA contexts of this process: primary and created ones, the per-thread stack, the sticky error.
//
// A CUcontext given out is the address of a Context; it is never freed, so a stale handle is recognised.
#pragma once
#include <atomic>
#include <memory>

#include "cudasim/driver/cuda_api.hpp"
#include "cudasim/store/layout.hpp"

namespace cudasim {

struct Context {
  int device = 0;
  unsigned flags = 0;
  bool primary = false;
  u64 id = 0;
  u64 charged_bytes = 0;
  std::atomic<int> users{0};  // primary: retains
  std::atomic<bool> alive{false};
  std::atomic<int> sticky{0};  // CUresult; once set, every later call in it fails (rule 19)
};

inline CUcontext handle_of(Context* context) {
  return reinterpret_cast<CUcontext>(context);
}
// nullptr when `handle` never was a context. It may be dead: check `alive`.
Context* context_of(CUcontext handle);

// The calling thread's current context; nullptr when there is none. May be dead or sticky: Call checks.
Context* current_context();

// Sets the sticky error (the first one stays) and returns it.
CUresult make_sticky(Context* context, CUresult code);

}  // namespace cudasim
