// Legacy IPC of cuMemAlloc memory (rules 32 to 35): a handle names an allocation file and a place in it.
#include <sys/mman.h>

#include <cstring>
#include <mutex>

#include "cudasim/driver/address_space.hpp"
#include "cudasim/driver/call.hpp"
#include "cudasim/driver/handles.hpp"

namespace cudasim {
namespace {

constexpr u64 kIpcMagic = 0x3143504953445543;

struct Ticket {
  u64 magic;
  u32 slot, device;
  u64 serial, offset, bytes, pid_namespace;
  u32 process, pad;
  u64 process_serial;
};
static_assert(sizeof(Ticket) <= CU_IPC_HANDLE_SIZE);

std::mutex open_mutex;  // two opens of one handle must meet

CUresult get_handle(CUipcMemHandle* out, CUdeviceptr address) {
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  auto mapping = AddressSpace::get().find(address);
  if (!mapping) return CUDA_ERROR_INVALID_VALUE;
  const bool plain = mapping->kind == RangeKind::kLinear && mapping->base == address;
  if (!plain && !break_rule(32)) return CUDA_ERROR_INVALID_VALUE;
  const Process& process = Process::get();
  Ticket ticket{};
  ticket.magic = kIpcMagic;
  ticket.slot = mapping->allocation->slot();
  ticket.device = static_cast<u32>(mapping->device);
  ticket.serial = mapping->allocation->serial();
  ticket.offset = mapping->offset;
  ticket.bytes = mapping->bytes;
  ticket.pid_namespace = process.record().pid_namespace;
  ticket.process = process.index();
  ticket.process_serial = process.record().serial;
  std::memset(out, 0, sizeof *out);
  std::memcpy(out, &ticket, sizeof ticket);
  return CUDA_SUCCESS;
}

// The exporter, still alive and still owning the memory.
CUresult check_exporter(const Ticket& ticket) {
  const Process& process = Process::get();
  settle(folder(), Census::kQuick);
  if (ticket.process_serial == process.record().serial && !break_rule(33)) return CUDA_ERROR_INVALID_CONTEXT;
  if (ticket.pid_namespace != process.record().pid_namespace && !break_rule(33))
    return codes::kIpcOtherNamespace;
  const ProcessRecord& exporter = control().processes[ticket.process % kMaxProcesses];
  if (exporter.serial != ticket.process_serial || exporter.state != static_cast<u32>(ProcessState::kLive))
    return codes::kIpcGone;
  const AllocationSlot& slot = folder().slot(ticket.slot % kMaxAllocations);
  return slot.serial == ticket.serial && !slot.freed ? CUDA_SUCCESS : codes::kIpcGone;
}

bool is_open(const Mapping& mapping, const Ticket& ticket, const Context* context) {
  return mapping.kind == RangeKind::kIpc && mapping.context == context &&
         mapping.allocation->serial() == ticket.serial && mapping.offset == ticket.offset;
}

CUresult map_ticket(const Ticket& ticket, Context& context, CUdeviceptr* out) {
  StoreError error;
  auto allocation = Allocation::open(folder(), Process::get().index(), ticket.slot, ticket.serial, error);
  if (!allocation || ticket.offset + ticket.bytes > allocation->bytes()) return codes::kIpcGone;
  const u64 whole = allocation->bytes();
  const CUdeviceptr base = reserve_addresses(whole, kGranularity, 0);
  const int protection = control().strict ? PROT_NONE : PROT_READ | PROT_WRITE;
  if (!base || !allocation->map(whole, reinterpret_cast<void*>(base), protection))
    return CUDA_ERROR_OUT_OF_MEMORY;
  allocation->record().ipc_opens++;
  Mapping mapping;
  mapping.base = base + ticket.offset;
  mapping.bytes = ticket.bytes;
  mapping.kind = RangeKind::kIpc;
  mapping.allocation = std::move(allocation);
  mapping.offset = ticket.offset;
  mapping.access.fill(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  mapping.context = &context;
  mapping.device = static_cast<int>(ticket.device);
  mapping.id = next_buffer_id();
  *out = mapping.base;
  AddressSpace& space = AddressSpace::get();
  std::unique_lock lock(space.mutex);
  space.ranges[mapping.base] = Range{mapping.base, mapping.bytes, RangeKind::kIpc, false};
  space.mappings[mapping.base] = std::move(mapping);
  return CUDA_SUCCESS;
}

CUresult open_handle(CUdeviceptr* out, const CUipcMemHandle& handle, unsigned flags) {
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  if (flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS && !break_rule(33)) return codes::kIpcBadFlags;
  Ticket ticket;
  std::memcpy(&ticket, &handle, sizeof ticket);
  if (ticket.magic != kIpcMagic || ticket.device >= control().device_count) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult code = check_exporter(ticket); code != CUDA_SUCCESS) return code;
  Context* context = current_context();
  std::lock_guard guard(open_mutex);
  AddressSpace& space = AddressSpace::get();
  {
    std::unique_lock lock(space.mutex);
    for (auto& [base, mapping] : space.mappings) {
      if (!is_open(mapping, ticket, context) || break_rule(33)) continue;
      mapping.opens++;
      *out = base;
      return CUDA_SUCCESS;
    }
  }
  return map_ticket(ticket, *context, out);
}

CUresult close_handle(CUdeviceptr address) {
  std::shared_ptr<Allocation> gone;  // ends after the lock
  AddressSpace& space = AddressSpace::get();
  std::unique_lock lock(space.mutex);
  auto found = space.mappings.find(address);
  if (found == space.mappings.end() || found->second.kind != RangeKind::kIpc) return codes::kIpcCloseUnknown;
  if (--found->second.opens > 0 && !break_rule(34)) return CUDA_SUCCESS;
  Mapping mapping = std::move(found->second);
  space.mappings.erase(found);
  space.ranges.erase(address);
  return_addresses(mapping.base - mapping.offset, mapping.allocation->bytes());
  mapping.allocation->record().ipc_opens--;
  gone = std::move(mapping.allocation);
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace cudasim

using namespace cudasim;

extern "C" {

CUresult CUDAAPI cuIpcGetMemHandle(CUipcMemHandle* out, CUdeviceptr address) {
  CUDASIM_CALL(cuIpcGetMemHandle, Needs::kContext, address);
  return call.done(get_handle(out, address));
}
CUresult CUDAAPI cuIpcOpenMemHandle(CUdeviceptr* out, CUipcMemHandle handle, unsigned flags) {
  CUDASIM_CALL(cuIpcOpenMemHandle, Needs::kContext, flags);
  return call.done(open_handle(out, handle, flags));
}
CUresult CUDAAPI cuIpcOpenMemHandle_v2(CUdeviceptr* out, CUipcMemHandle handle, unsigned flags) {
  CUDASIM_CALL(cuIpcOpenMemHandle_v2, Needs::kContext, flags);
  return call.done(open_handle(out, handle, flags));
}
CUresult CUDAAPI cuIpcCloseMemHandle(CUdeviceptr address) {
  const bool broken = Process::get().folder() && break_rule(34);
  CUDASIM_CALL(cuIpcCloseMemHandle, broken ? Needs::kDriver : Needs::kContext, address);
  return call.done(close_handle(address));
}

}  // extern "C"
