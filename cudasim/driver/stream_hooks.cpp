// Where streams, captures and pools plug into the rest of the driver.
#include "cudasim/driver/hooks.hpp"
#include "cudasim/driver/pool.hpp"
#include "cudasim/driver/submit.hpp"

namespace cudasim {
namespace {

CUresult synchronise(Context& context) {
  return synchronise_context(context);
}

bool pending(CUdeviceptr address, u64 bytes) {
  return Streams::get().pending(address, bytes) != nullptr;
}

CUresult capture_check(const Function& function) {
  if (break_rule(36)) return CUDA_SUCCESS;
  const std::string_view symbol = function.symbol;
  if (symbol.starts_with("cuCtxSynchronize")) {
    const Context* context = current_context();
    return context == nullptr ? CUDA_SUCCESS : Captures::get().refuse_context(*context);
  }
  return unsafe_during_capture(function.symbol) ? Captures::get().check_unsafe() : CUDA_SUCCESS;
}

void context_gone(Context& context) {
  Captures::get().context_gone(context);
  Streams::get().context_gone(context);
  Pools::get().context_gone(context);
}

CUresult free_async(CUdeviceptr address, bool& handled) {
  handled = Pools::get().free_now(address);
  return CUDA_SUCCESS;
}

CUresult before_synchronous_copy(Context&) {
  return synchronise_stream(CU_STREAM_LEGACY, Default::kLegacy);
}

struct Plug {
  Plug() {
    hooks() = {.synchronise = synchronise,
               .pending = pending,
               .capture_check = capture_check,
               .context_gone = context_gone,
               .free_async = free_async,
               .before_synchronous_copy = before_synchronous_copy};
  }
} plug;

}  // namespace
}  // namespace cudasim
