#include "cudasim/driver/host_memory.hpp"

#include <sys/mman.h>

#include <map>
#include <mutex>

#include "cudasim/driver/call.hpp"
#include "cudasim/driver/handles.hpp"

namespace cudasim {
namespace {

struct Table {
  std::mutex mutex;
  std::map<u64, HostMemory> entries;
};
Table& table() {
  static auto* instance = new Table;
  return *instance;
}

constexpr unsigned kAllocFlags =
    CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
constexpr unsigned kRegisterFlags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                                    CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;

u64 whole_pages(u64 bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}

void add(u64 base, u64 bytes, unsigned flags, bool registered) {
  table().entries[base] = {base, bytes, flags, registered, handle_of(current_context()), next_buffer_id()};
}

CUresult allocate(void** out, u64 bytes, unsigned flags) {
  if (!out || bytes == 0 || flags & ~kAllocFlags) return CUDA_ERROR_INVALID_VALUE;
  void* memory = ::mmap(nullptr, whole_pages(bytes), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  std::lock_guard guard(table().mutex);
  add(reinterpret_cast<u64>(memory), bytes, flags, false);
  *out = memory;
  return CUDA_SUCCESS;
}

CUresult release(void* pointer) {
  if (!pointer) return CUDA_SUCCESS;
  std::lock_guard guard(table().mutex);
  auto found = table().entries.find(reinterpret_cast<u64>(pointer));
  if (found == table().entries.end() || found->second.registered) return CUDA_ERROR_INVALID_VALUE;
  ::munmap(pointer, whole_pages(found->second.bytes));
  table().entries.erase(found);
  return CUDA_SUCCESS;
}

bool overlaps(u64 base, u64 bytes) {
  auto after = table().entries.lower_bound(base + bytes);
  return after != table().entries.begin() &&
         std::prev(after)->second.base + std::prev(after)->second.bytes > base;
}

CUresult enlist(void* pointer, u64 bytes, unsigned flags) {
  const u64 base = reinterpret_cast<u64>(pointer);
  if (!pointer || bytes == 0 || base + bytes < base || flags & ~kRegisterFlags)
    return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard guard(table().mutex);
  if (overlaps(base, bytes)) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  add(base, bytes, flags, true);
  return CUDA_SUCCESS;
}

CUresult dismiss(void* pointer) {
  if (!pointer) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard guard(table().mutex);
  auto found = table().entries.find(reinterpret_cast<u64>(pointer));
  if (found == table().entries.end() || !found->second.registered)
    return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  table().entries.erase(found);
  return CUDA_SUCCESS;
}

}  // namespace

std::optional<HostMemory> find_host_memory(u64 address) {
  std::lock_guard guard(table().mutex);
  auto after = table().entries.upper_bound(address);
  if (after == table().entries.begin()) return std::nullopt;
  const HostMemory& entry = std::prev(after)->second;
  return address - entry.base < entry.bytes ? std::optional(entry) : std::nullopt;
}

}  // namespace cudasim

using namespace cudasim;

extern "C" {

CUresult CUDAAPI cuMemAllocHost_v2(void** out, size_t bytes) {
  CUDASIM_CALL(cuMemAllocHost_v2, Needs::kContext, bytes);
  return call.done(allocate(out, bytes, 0));
}
CUresult CUDAAPI cuMemFreeHost(void* pointer) {
  CUDASIM_CALL(cuMemFreeHost, Needs::kContext, pointer);
  return call.done(release(pointer));
}
CUresult CUDAAPI cuMemHostAlloc(void** out, size_t bytes, unsigned flags) {
  CUDASIM_CALL(cuMemHostAlloc, Needs::kContext, bytes, flags);
  return call.done(allocate(out, bytes, flags));
}
CUresult CUDAAPI cuMemHostGetDevicePointer_v2(CUdeviceptr* out, void* pointer, unsigned flags) {
  CUDASIM_CALL(cuMemHostGetDevicePointer_v2, Needs::kContext, pointer, flags);
  if (!out || flags || !find_host_memory(reinterpret_cast<u64>(pointer)))
    return call.done(CUDA_ERROR_INVALID_VALUE);
  *out = reinterpret_cast<CUdeviceptr>(pointer);
  return call.done(CUDA_SUCCESS);
}
CUresult CUDAAPI cuMemHostGetFlags(unsigned* out, void* pointer) {
  CUDASIM_CALL(cuMemHostGetFlags, Needs::kContext, pointer);
  auto entry = find_host_memory(reinterpret_cast<u64>(pointer));
  if (!out || !entry) return call.done(CUDA_ERROR_INVALID_VALUE);
  *out = entry->flags | CU_MEMHOSTALLOC_DEVICEMAP;
  return call.done(CUDA_SUCCESS);
}
CUresult CUDAAPI cuMemHostRegister(void* pointer, size_t bytes, unsigned flags) {
  CUDASIM_CALL(cuMemHostRegister, Needs::kContext, pointer, bytes);
  return call.done(enlist(pointer, bytes, flags));
}
CUresult CUDAAPI cuMemHostRegister_v2(void* pointer, size_t bytes, unsigned flags) {
  CUDASIM_CALL(cuMemHostRegister_v2, Needs::kContext, pointer, bytes);
  return call.done(enlist(pointer, bytes, flags));
}
CUresult CUDAAPI cuMemHostUnregister(void* pointer) {
  CUDASIM_CALL(cuMemHostUnregister, Needs::kContext, pointer);
  return call.done(dismiss(pointer));
}

}  // extern "C"
