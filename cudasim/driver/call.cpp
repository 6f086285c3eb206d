#include "cudasim/driver/call.hpp"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "cudasim/driver/hooks.hpp"

namespace cudasim {
namespace {

thread_local u32 current_function = kMaxFunctions;

void spend(DelayKind kind, u64 ns, ControlPage& page) {
  if (kind == DelayKind::kVirtual) page.virtual_now_ns += ns;
  if (kind == DelayKind::kSleep) {
    timespec left{static_cast<time_t>(ns / 1000000000), static_cast<long>(ns % 1000000000)};
    while (::nanosleep(&left, &left) != 0) {
    }
  }
  if (kind == DelayKind::kSpin)
    for (const u64 end = monotonic_ns() + ns; monotonic_ns() < end;) {
    }
}

void raise_signal(int signal) {
  if (!signal) return;
  ::kill(::getpid(), signal);
  while (signal == SIGKILL)
    ::pause();
}

}  // namespace

Hooks& hooks() {
  static Hooks table;
  return table;
}

void check_pending(CUdeviceptr address, u64 bytes, const char* what) {
  if (hooks().pending && hooks().pending(address, bytes)) violation(what, address, bytes);
}

void violation(const char* what, u64 a, u64 b) {
  folder().log(RecordKind::kViolation, current_function, 0, a, b, what);
  // For a run that must have none: stop where it happened, with a core of the caller.
  static const bool fatal = std::getenv("CUDASIM_ABORT_ON_VIOLATION") != nullptr;
  if (fatal) std::abort();
}

u32 Function::resolve(const Folder& folder) {
  u32 known = index.load(std::memory_order_relaxed);
  if (known != ~0u) return known;
  std::string name = symbol;
  for (bool more = true; more;) {
    more = false;
    for (const char* suffix : {"_ptsz", "_ptds", "_v2", "_v3", "_v4"})
      if (name.size() > std::strlen(suffix) && name.ends_with(suffix)) {
        name.resize(name.size() - std::strlen(suffix));
        more = true;
      }
  }
  known = folder.function_index(name.c_str());
  index.store(known, std::memory_order_relaxed);
  return known;
}

Call::Call(Function& function, Needs needs, u64 a, u64 b) : a_(a), b_(b) {
  Process& process = Process::get();
  folder_ = process.folder();
  if (!folder_) {
    refused_ = needs != Needs::kNothing;
    code_ = process.attach_error();
    return;
  }
  index_ = current_function = function.resolve(*folder_);
  record_ = &folder_->page().functions[index_];
  record_->called.fetch_add(1, std::memory_order_relaxed);
  if (!process.forked_child())
    folder_->count(process.index(), index_).fetch_add(1, std::memory_order_relaxed);
  const u64 delay = record_->delay_ns.load(std::memory_order_relaxed);
  if (delay) spend(static_cast<DelayKind>(record_->delay_kind.load()), delay, folder_->page());
  code_ = check(needs);
  if (code_ == CUDA_SUCCESS && record_->fault.armed.load(std::memory_order_acquire)) apply_faults();
  if (code_ == CUDA_SUCCESS && needs != Needs::kNothing && hooks().capture_check)
    code_ = hooks().capture_check(function);
  if (code_ == CUDA_SUCCESS) return;
  refused_ = true;
  done(code_);
}

CUresult Call::check(Needs needs) {
  if (needs == Needs::kNothing) return CUDA_SUCCESS;
  Process& process = Process::get();
  if (!process.initialised() && break_rule(1)) process.initialise();
  if (!process.initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  if (process.forked_child() && !break_rule(37)) return codes::kForkedChild;
  if (needs == Needs::kInit) return CUDA_SUCCESS;
  Context* context = current_context();
  if (device_record(context ? context->device : 0).lost) return codes::kDeviceLost;
  if (context) {
    if (int code = process.record().sticky_code) make_sticky(context, static_cast<CUresult>(code));
    if (int code = context->sticky) return static_cast<CUresult>(code);
  }
  if (needs == Needs::kDriver) return CUDA_SUCCESS;
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  return context->alive ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

void Call::apply_faults() {
  FaultRecord& fault = record_->fault;
  const int pid = fault.pid;
  if (pid && pid != ::getpid()) return;
  const u64 nth = fault.seen.fetch_add(1) + 1;
  const u64 first = fault.first, count = fault.count;
  if (nth < first || nth - first >= count) return;
  raise_signal(fault.signal_before);
  signal_after_ = fault.signal_after;
  if (int code = fault.code) code_ = static_cast<CUresult>(code);
}

CUresult Call::done(CUresult result) {
  if (!folder_) return result;
  if (result == CUDA_SUCCESS) record_->did.fetch_add(1, std::memory_order_relaxed);
  folder_->log(RecordKind::kCall, index_, result, a_, b_, nullptr);
  raise_signal(signal_after_);
  signal_after_ = 0;
  return result;
}

void Call::delay_again(u64 times) {
  if (!folder_) return;
  const u64 delay = record_->delay_ns.load(std::memory_order_relaxed);
  if (delay && times)
    spend(static_cast<DelayKind>(record_->delay_kind.load()), delay * times, folder_->page());
}

}  // namespace cudasim
