// VMM handles between processes: export, import, retain, properties (rules 20 to 26).
#include <fcntl.h>
#include <unistd.h>

#include "cudasim/driver/call.hpp"
#include "cudasim/driver/handles.hpp"

namespace cudasim {
namespace {

// Values differ from process to process, as a device's do: one sent by message instead of by fd is caught.
u64 first_id() {
  return (u64{0x5e} << 40) + (static_cast<u64>(::getpid()) << 20);
}

CUmemAllocationProp properties_of(const AllocationSlot& record) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = static_cast<CUmemAllocationHandleType>(record.handle_types);
  properties.location.type = static_cast<CUmemLocationType>(record.location_type);
  properties.location.id = static_cast<int>(record.location_id);
  properties.allocFlags.compressionType = static_cast<unsigned char>(record.compression);
  properties.allocFlags.gpuDirectRDMACapable = static_cast<unsigned char>(record.rdma);
  properties.allocFlags.usage = static_cast<unsigned short>(record.usage);
  return properties;
}

CUresult export_handle(void* out, CUmemGenericAllocationHandle id, unsigned type, unsigned long long flags) {
  if (!out || flags) return CUDA_ERROR_INVALID_VALUE;
  AddressSpace& space = AddressSpace::get();
  std::shared_ptr<Handle> handle;
  {
    std::shared_lock lock(space.mutex);
    handle = find_handle(space, id);
  }
  if (!handle) return CUDA_ERROR_INVALID_VALUE;
  const bool asked = handle->properties.requestedHandleTypes & type;
  if ((!asked || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) && !break_rule(20))
    return codes::kExportWrongType;
  if (handle->imported && break_rule(21)) return CUDA_ERROR_INVALID_VALUE;
  StoreError error;
  const int fd = handle->allocation->export_fd(error);
  if (fd < 0) return error == StoreError::kExportTableFull ? codes::kExportTableFull : code_of(error);
  if (break_rule(20)) ::fcntl(fd, F_SETFD, 0);
  *static_cast<int*>(out) = fd;
  return CUDA_SUCCESS;
}

// Rule 23, broken on purpose: a process that was there before the exporter cannot import from it once it
// died.
bool exporter_gone(const AllocationSlot& record) {
  settle(folder(), Census::kQuick);
  const ProcessRecord& exporter = control().processes[record.creator_process];
  const bool alive =
      exporter.serial == record.creator_serial && exporter.state == static_cast<u32>(ProcessState::kLive);
  return !alive && Process::get().record().serial < record.creator_serial;
}

CUresult import_handle(CUmemGenericAllocationHandle* out, void* os_handle, unsigned type) {
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
  if (break_rule(23) && !current_context()) return CUDA_ERROR_INVALID_CONTEXT;
  const int fd = static_cast<int>(reinterpret_cast<intptr_t>(os_handle));
  StoreError error;
  auto allocation = Allocation::import(folder(), Process::get().index(), fd, error);
  if (!allocation && break_rule(22)) return CUDA_ERROR_UNKNOWN;
  if (!allocation)
    return error == StoreError::kNotAnAllocation ? codes::kImportNotAnAllocation : code_of(error);
  if (break_rule(23) && exporter_gone(allocation->record())) return CUDA_ERROR_INVALID_VALUE;
  if (break_rule(22)) ::close(fd);  // rule 22: the fd is not consumed
  *out = add_handle(std::move(allocation), true);
  return CUDA_SUCCESS;
}

CUresult retain(CUmemGenericAllocationHandle* out, CUdeviceptr address) {
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  AddressSpace& space = AddressSpace::get();
  auto mapping = space.find(address);
  if (!mapping || !mapping->handle) return CUDA_ERROR_INVALID_VALUE;
  if (break_rule(25)) {
    *out = add_handle(mapping->allocation, mapping->handle->imported);
    return CUDA_SUCCESS;
  }
  std::unique_lock lock(space.mutex);
  if (mapping->handle->references++ == 0) mapping->allocation->record().handles++;
  space.handles[mapping->handle->id] = mapping->handle;
  *out = mapping->handle->id;
  return CUDA_SUCCESS;
}

CUresult get_properties(CUmemAllocationProp* out, CUmemGenericAllocationHandle id) {
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  AddressSpace& space = AddressSpace::get();
  std::shared_lock lock(space.mutex);
  auto handle = find_handle(space, id);
  if (!handle || (handle->imported && break_rule(26))) return CUDA_ERROR_INVALID_VALUE;
  *out = handle->properties;
  if (break_rule(5) && !handle->imported) {
    out->requestedHandleTypes = static_cast<CUmemAllocationHandleType>(out->requestedHandleTypes ^ 1);
    out->allocFlags.gpuDirectRDMACapable ^= 1;
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUmemGenericAllocationHandle add_handle(std::shared_ptr<Allocation> allocation, bool imported) {
  auto handle = std::make_shared<Handle>();
  handle->properties = properties_of(allocation->record());
  handle->allocation = std::move(allocation);
  handle->imported = imported;
  handle->allocation->record().handles++;
  AddressSpace& space = AddressSpace::get();
  std::unique_lock lock(space.mutex);
  handle->id = first_id() + space.next_handle_id++;
  space.handles[handle->id] = handle;
  return handle->id;
}

std::shared_ptr<Handle> find_handle(AddressSpace& space, CUmemGenericAllocationHandle id) {
  auto found = space.handles.find(id);
  return found == space.handles.end() || found->second->references == 0 ? nullptr : found->second;
}

bool was_handle(CUmemGenericAllocationHandle id) {
  AddressSpace& space = AddressSpace::get();
  std::shared_lock lock(space.mutex);
  return id - first_id() < space.next_handle_id;
}

u64 next_buffer_id() {
  static std::atomic<u64> next{1};
  return next++;
}

CUresult code_of(StoreError error) {
  switch (error) {
    case StoreError::kNone:
      return CUDA_SUCCESS;
    case StoreError::kNoMemory:
      return CUDA_ERROR_OUT_OF_MEMORY;
    case StoreError::kNotAnAllocation:
      return CUDA_ERROR_INVALID_VALUE;
    case StoreError::kExportTableFull:
      return codes::kExportTableFull;
    case StoreError::kSystem:
      break;
  }
  return CUDA_ERROR_OPERATING_SYSTEM;
}

}  // namespace cudasim

using namespace cudasim;

extern "C" {

CUresult CUDAAPI cuMemExportToShareableHandle(void* out, CUmemGenericAllocationHandle handle,
                                              CUmemAllocationHandleType type, unsigned long long flags) {
  CUDASIM_CALL(cuMemExportToShareableHandle, Needs::kDriver, handle, type);
  return call.done(export_handle(out, handle, type, flags));
}
CUresult CUDAAPI cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* out, void* os_handle,
                                                CUmemAllocationHandleType type) {
  CUDASIM_CALL(cuMemImportFromShareableHandle, Needs::kDriver, os_handle, type);
  return call.done(import_handle(out, os_handle, type));
}
CUresult CUDAAPI cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* out, void* address) {
  CUDASIM_CALL(cuMemRetainAllocationHandle, Needs::kDriver, address);
  return call.done(retain(out, reinterpret_cast<CUdeviceptr>(address)));
}
CUresult CUDAAPI cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* out,
                                                        CUmemGenericAllocationHandle handle) {
  CUDASIM_CALL(cuMemGetAllocationPropertiesFromHandle, Needs::kDriver, handle);
  return call.done(get_properties(out, handle));
}

}  // extern "C"
