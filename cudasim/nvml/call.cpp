#include "cudasim/nvml/call.hpp"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "cudasim/nvml/source.hpp"
#include "cudasim/store/folder.hpp"

namespace cudasim::nvml {
namespace {

void spend(const FunctionRecord& record, ControlPage& page) {
  const u64 ns = record.delay_ns.load();
  switch (static_cast<DelayKind>(record.delay_kind.load())) {
    case DelayKind::kNone:
      break;
    case DelayKind::kVirtual:
      page.virtual_now_ns += ns;
      break;
    case DelayKind::kSleep: {
      timespec left{static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
      while (::nanosleep(&left, &left) != 0) {
      }
      break;
    }
    case DelayKind::kSpin:
      for (const u64 end = monotonic_ns() + ns; monotonic_ns() < end;) {
      }
  }
}

// The code that the armed fault gives this call; 0: none.
int fault_code(FaultRecord& fault) {
  if (fault.armed.load(std::memory_order_acquire) == 0) return 0;
  const int pid = fault.pid;
  if (pid != 0 && pid != ::getpid()) return 0;
  const u64 nth = fault.seen.fetch_add(1) + 1;
  const u64 first = fault.first, count = fault.count;
  if (nth < first || nth - first >= count) return 0;
  if (const int signal = fault.signal_before) ::kill(::getpid(), signal);
  return fault.code;
}

}  // namespace

Return enter(const char* function) {
  const Folder* folder = source_folder();
  if (folder == nullptr) return kSuccess;
  ControlPage& page = folder->page();
  const u32 index = folder->function_index(function);
  FunctionRecord& record = page.functions[index];
  record.called.fetch_add(1, std::memory_order_relaxed);
  spend(record, page);
  const int code = fault_code(record.fault);
  if (code == 0) record.did.fetch_add(1, std::memory_order_relaxed);
  folder->log(RecordKind::kCall, index, code, 0, 0, nullptr);
  return static_cast<Return>(code);
}

}  // namespace cudasim::nvml
