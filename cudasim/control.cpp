#include "cudasim/control.hpp"

#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "cudasim/store/census.hpp"

namespace cudasim {
namespace {

// The record of `pid`, the newest when the number was used before; nullptr: it never called the driver.
ProcessRecord* process_of(const Folder& folder, int pid) {
  ProcessRecord* found = nullptr;
  for (u32 i = 0; i < folder.page().process_high_water; i++) {
    ProcessRecord& record = folder.page().processes[i];
    if (record.pid == pid && (!found || record.serial > found->serial)) found = &record;
  }
  return found;
}

}  // namespace

std::unique_ptr<Control> Control::open(const std::string& path, const FolderOptions& options,
                                       std::string& error) {
  std::unique_ptr<Folder> folder = Folder::open(path, options, error);
  return folder ? std::unique_ptr<Control>(new Control(std::move(folder))) : nullptr;
}

FunctionRecord& Control::function(const std::string& name) const {
  return page().functions[folder_->function_index(name.c_str())];
}

void Control::set_fault(const std::string& name, const Fault& fault) {
  FaultRecord& record = function(name).fault;
  record.armed = 0;
  record.pid = fault.pid;
  record.code = fault.code;
  record.first = fault.first;
  record.count = fault.count;
  record.signal_before = fault.signal_before;
  record.signal_after = fault.signal_after;
  record.seen = 0;
  record.armed.store(1, std::memory_order_release);
}

void Control::clear_fault(const std::string& name) {
  function(name).fault.armed = 0;
}

void Control::clear_faults() {
  for (FunctionRecord& record : page().functions) {
    if (!record.named) return;
    record.fault.armed = 0;
    record.delay_ns = 0;
  }
}

void Control::set_delay(const std::string& name, DelayKind kind, u64 ns) {
  FunctionRecord& record = function(name);
  record.delay_kind = static_cast<u32>(kind);
  record.delay_ns = kind == DelayKind::kNone ? 0 : ns;
}

void Control::set_death_ms(u32 low, u32 high) {
  page().death_min_ms = low;
  page().death_max_ms = high;
}

void Control::set_sticky(int pid, int code) {
  if (ProcessRecord* record = process_of(*folder_, pid)) record->sticky_code = code;
}

u64 Control::calls(const std::string& name) const {
  return function(name).called;
}
u64 Control::successes(const std::string& name) const {
  return function(name).did;
}

u64 Control::calls(const std::string& name, int pid) const {
  const ProcessRecord* record = process_of(*folder_, pid);
  if (!record) return 0;
  return folder_->count(static_cast<u32>(record - page().processes), folder_->function_index(name.c_str()));
}

u64 Control::calls_of(int pid) const {
  const ProcessRecord* record = process_of(*folder_, pid);
  u64 sum = 0;
  for (u32 i = 0; record && i < kMaxFunctions && page().functions[i].named; i++)
    sum += folder_->count(static_cast<u32>(record - page().processes), i);
  return sum;
}

std::vector<CallRecord> Control::records(u64 position) const {
  const u64 end = page().ring_head;
  if (end > kRingRecords) position = std::max(position, end - kRingRecords);
  std::vector<CallRecord> found;
  for (; position < end; position++) {
    Record& record = folder_->record(position);
    if (record.sequence.load(std::memory_order_acquire) != position + 1) continue;
    CallRecord copy{page().functions[record.function % kMaxFunctions].name,
                    static_cast<RecordKind>(record.kind),
                    record.pid,
                    record.tid,
                    record.result,
                    record.time_ns,
                    record.args[0],
                    record.args[1],
                    std::string(record.text, ::strnlen(record.text, sizeof record.text))};
    // SYNC POINT: no read above may move below this. A read-modify-write, since a load would not hold them.
    if (record.sequence.fetch_add(0, std::memory_order_release) == position + 1)
      found.push_back(std::move(copy));
  }
  return found;
}

u64 Control::used_bytes(u32 device) const {
  return cudasim::used_bytes(*folder_, device, Census::kExact);
}

bool Control::wait(const std::function<bool()>& done, int timeout_ms) {
  const u64 deadline = monotonic_ns() + static_cast<u64>(timeout_ms) * 1000000;
  while (!done()) {
    if (monotonic_ns() >= deadline) return done();
    ::poll(nullptr, 0, 1);
  }
  return true;
}

bool Control::wait_used(u32 device, u64 bytes, int timeout_ms) const {
  return wait([&] { return used_bytes(device) == bytes; }, timeout_ms);
}

bool Control::wait_no_references(int timeout_ms) const {
  return wait(
      [&] {
        settle(*folder_, Census::kExact);
        if (page().live_slots) return false;
        for (u32 i = 0; i < page().process_high_water; i++)
          if (page().processes[i].state == static_cast<u32>(ProcessState::kDying)) return false;
        return true;
      },
      timeout_ms);
}

TemporaryFolder::TemporaryFolder(const FolderOptions& options) {
  std::string error;
  control_ = Control::open(path(), options, error);
  if (control_) return;
  std::fprintf(stderr, "%s\n", error.c_str());
  std::abort();
}

}  // namespace cudasim
