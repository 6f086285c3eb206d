// What every exported driver function opens with: counting, the log, faults, delays and the checks that
// hold for every call (initialised, forked child, device lost, sticky error, current context).
//
//   CUresult CUDAAPI cuMemRelease(CUmemGenericAllocationHandle handle) {
//     CUDASIM_CALL(cuMemRelease, Needs::kDriver, handle);  // returns from here when the call is refused
//     return call.done(release(handle));
//   }
//
// The macro takes the exported symbol; faults and counters go by its name without _v2, _ptsz, _ptds.
#pragma once
#include "cudasim/driver/codes.hpp"
#include "cudasim/driver/context.hpp"
#include "cudasim/driver/process.hpp"

namespace cudasim {

// What a call needs before it may have an effect.
enum class Needs {
  kNothing,  // legal before cuInit (cuInit, cuDriverGetVersion, cuGetProcAddress, cuGetError*)
  kInit,     // cuInit; ignores a sticky error (device queries, context stack)
  kDriver,   // cuInit; fails with the current context's sticky error, if there is one (VMM)
  kContext,  // a current context that lives, without sticky error
};

// One per exported function, `static constinit` in CUDASIM_CALL. Its index is found at the first call.
struct Function {
  const char* symbol;
  std::atomic<u32> index{~0u};
  u32 resolve(const Folder& folder);
};

class Call {
 public:
  Call(Function& function, Needs needs, u64 a = 0, u64 b = 0);
  ~Call() = default;
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // The call ends here, without effect, with this code (done() was already applied).
  bool refused() const { return refused_; }
  CUresult code() const { return code_; }

  // Ends the call: kill-after faults, did_, the ring. Returns `result`.
  CUresult done(CUresult result);

  // Adds the function's delay once more for each further handle (cuMemSetAccess, cuMemUnmap).
  void delay_again(u64 times);

  const Folder* folder() const { return folder_; }
  u32 function() const { return index_; }

 private:
  CUresult check(Needs needs);
  void apply_faults();
  const Folder* folder_ = nullptr;
  FunctionRecord* record_ = nullptr;
  u32 index_ = 0;
  bool refused_ = false;
  int signal_after_ = 0;
  CUresult code_ = CUDA_SUCCESS;
  u64 a_, b_;
};

template <typename T>
u64 call_argument(T value) {
  if constexpr (std::is_pointer_v<T>)
    return reinterpret_cast<u64>(value);
  else
    return static_cast<u64>(value);
}

#define CUDASIM_CALL(symbol, needs, ...)                                                           \
  static constinit ::cudasim::Function cudasim_function{#symbol};                                  \
  ::cudasim::Call call = ::cudasim::make_call(cudasim_function, needs __VA_OPT__(, ) __VA_ARGS__); \
  if (call.refused()) return call.code()

template <typename... Args>
Call make_call(Function& function, Needs needs, Args... args) {
  static_assert(sizeof...(Args) <= 2, "the ring keeps two arguments");
  return Call(function, needs, call_argument(args)...);
}

// Reports a use that a real device punishes without telling: counted, in the ring, one line on stderr.
void violation(const char* what, u64 a = 0, u64 b = 0);

}  // namespace cudasim
