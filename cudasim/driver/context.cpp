#include "cudasim/driver/context_table.hpp"

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "cudasim/driver/call.hpp"
#include "cudasim/driver/hooks.hpp"
#include "cudasim/driver/linear.hpp"

namespace cudasim {
namespace {

struct Contexts {
  std::mutex mutex;
  std::vector<std::unique_ptr<Context>> all;  // never shrinks: stale handles stay recognisable
  Context* primary[kMaxDevices] = {};
};
Contexts& contexts() {
  static auto* table = new Contexts;
  return *table;
}
// A program's static destructors make driver calls after this thread's thread_local objects are gone: the
// vector is reached through a pointer, freed when the thread ends, and made again for whoever still comes.
thread_local std::vector<Context*>* own_stack = nullptr;
struct StackEnd {
  bool armed = false;
  ~StackEnd() { delete std::exchange(own_stack, nullptr); }
};
thread_local StackEnd stack_end;

std::vector<Context*>& stack() {
  if (own_stack == nullptr) {
    own_stack = new std::vector<Context*>;
    stack_end.armed = true;
  }
  return *own_stack;
}

// A context costs device memory; a full device has no room for one.
bool charge(Context& context) {
  DeviceRecord& device = device_record(context.device);
  Folder::Lock lock(folder());
  auto fits = [&] {
    return device.used_bytes + device.stranger_bytes + device.context_bytes <= device.total_bytes;
  };
  if (!fits()) settle_locked(folder(), Census::kExact);
  if (!fits()) return false;
  context.charged_bytes = device.context_bytes;
  Process::get().record().context_bytes[context.device] += context.charged_bytes;
  device.used_bytes += context.charged_bytes;
  return true;
}

CUresult start(Context& context, unsigned flags) {
  if (!charge(context)) return CUDA_ERROR_OUT_OF_MEMORY;
  static std::atomic<u64> ids{1};
  context.id = ids++;
  context.flags = flags;
  context.sticky = 0;
  context.alive = true;
  return CUDA_SUCCESS;
}

void end(Context& context) {
  if (!context.alive) return;
  if (hooks().context_gone) hooks().context_gone(context);
  linear_context_gone(context);
  context.alive = false;
  Folder::Lock lock(folder());
  Process::get().record().context_bytes[context.device] -= context.charged_bytes;
  device_record(context.device).used_bytes -= context.charged_bytes;
  context.charged_bytes = 0;
}

Context* add_context(int device, bool primary) {
  contexts().all.push_back(std::make_unique<Context>());
  Context* context = contexts().all.back().get();
  context->device = device;
  context->primary = primary;
  return context;
}

}  // namespace

CUresult create_context(CUcontext* out, unsigned flags, CUdevice device) {
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  if (!known_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  if (device_record(device).lost) return codes::kDeviceLost;
  std::lock_guard guard(contexts().mutex);
  Context* context = add_context(device, false);
  const CUresult result = start(*context, flags);
  if (result != CUDA_SUCCESS) return result;
  stack().push_back(context);
  *out = handle_of(context);
  return CUDA_SUCCESS;
}

CUresult destroy_context(CUcontext handle) {
  Context* context = context_of(handle);
  if (!context) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard guard(contexts().mutex);
  if (context->primary || !context->alive) return CUDA_ERROR_INVALID_CONTEXT;
  end(*context);
  if (!stack().empty() && stack().back() == context) stack().pop_back();
  return CUDA_SUCCESS;
}

CUresult retain_primary(CUcontext* out, CUdevice device) {
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  if (!known_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  if (device_record(device).lost) return codes::kDeviceLost;
  std::lock_guard guard(contexts().mutex);
  Context*& primary = contexts().primary[device];
  if (!primary) primary = add_context(device, true);
  if (!primary->alive) {
    const CUresult result = start(*primary, primary->flags);
    if (result != CUDA_SUCCESS) return result;
  }
  primary->users++;
  *out = handle_of(primary);
  return CUDA_SUCCESS;
}

CUresult release_primary(CUdevice device, bool reset) {
  if (!known_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  std::lock_guard guard(contexts().mutex);
  Context* primary = contexts().primary[device];
  if (reset) {
    if (primary && primary->alive) {
      const int users = primary->users;
      end(*primary);
      if (users > 0) return start(*primary, primary->flags);  // a reset primary context is made again
    }
    return CUDA_SUCCESS;
  }
  if (!primary || primary->users == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (--primary->users == 0) end(*primary);
  return CUDA_SUCCESS;
}

CUresult pop_context(CUcontext* out) {
  if (stack().empty() || !stack().back()) return CUDA_ERROR_INVALID_CONTEXT;
  if (out) *out = handle_of(stack().back());
  stack().pop_back();
  return CUDA_SUCCESS;
}

CUresult push_context(CUcontext handle) {
  Context* context = context_of(handle);
  if (!context) return CUDA_ERROR_INVALID_VALUE;
  if (!context->alive) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  stack().push_back(context);
  return CUDA_SUCCESS;
}

CUresult set_current_context(CUcontext handle) {
  if (!handle) {
    if (!stack().empty()) stack().pop_back();
    return CUDA_SUCCESS;
  }
  Context* context = context_of(handle);
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  if (!context->alive) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (stack().empty())
    stack().push_back(context);
  else
    stack().back() = context;
  return CUDA_SUCCESS;
}

CUresult wait_for_context(Context& context) {
  const CUresult result = hooks().synchronise ? hooks().synchronise(context) : CUDA_SUCCESS;
  return context.sticky ? static_cast<CUresult>(context.sticky.load()) : result;
}

CUresult set_primary_flags(CUdevice device, unsigned flags) {
  if (!known_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  std::lock_guard guard(contexts().mutex);
  Context*& primary = contexts().primary[device];
  if (!primary) primary = add_context(device, true);
  primary->flags = flags;
  return CUDA_SUCCESS;
}
CUresult primary_state(CUdevice device, unsigned* flags, int* active) {
  if (!flags || !active) return CUDA_ERROR_INVALID_VALUE;
  if (!known_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  std::lock_guard guard(contexts().mutex);
  const Context* primary = contexts().primary[device];
  *flags = primary ? primary->flags : 0;
  *active = primary && primary->alive;
  return CUDA_SUCCESS;
}

Context* context_of(CUcontext handle) {
  std::lock_guard guard(contexts().mutex);
  for (const auto& context : contexts().all)
    if (handle_of(context.get()) == handle) return context.get();
  return nullptr;
}

Context* current_context() {
  return stack().empty() ? nullptr : stack().back();
}

CUresult make_sticky(Context* context, CUresult code) {
  int none = 0;
  if (context && !break_rule(19)) context->sticky.compare_exchange_strong(none, code);
  return code;
}

}  // namespace cudasim
