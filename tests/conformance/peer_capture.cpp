// Which calls a GLOBAL stream capture of another thread forbids: tests/conformance/peer_probes.hpp.
#include <unistd.h>

#include <cstring>
#include <iterator>
#include <thread>

#include "driver.hpp"
#include "peer_probes.hpp"

namespace apportion::conformance {
namespace {

// What the calls need, made before the capture begins.
struct Made {
  static constexpr std::size_t kBytes = std::size_t{64} << 20;
  CUmemAllocationProp prop{};
  CUmemAccessDesc access{};
  CUmemGenericAllocationHandle handle = 0;  // not mapped
  CUmemGenericAllocationHandle mapped_handle = 0;
  CUmemGenericAllocationHandle scratch_handle = 0;
  CUdeviceptr empty = 0;   // reserved
  CUdeviceptr mapped = 0;  // reserved and mapped
  CUdeviceptr scratch = 0;
  CUdeviceptr plain = 0;  // of cuMemAlloc
  CUdeviceptr scratch_plain = 0;
  CUevent event = nullptr;
  CUstream stream = nullptr;
  int fd = -1;
  std::uint64_t word = 0;
  std::size_t figure = 0;
  std::size_t figure2 = 0;

  CUresult prepare() {
    const DriverTable& cuda = driver();
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    access.location = prop.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    const CUresult codes[] = {
        cuda.mem_create(&handle, kBytes, &prop, 0),
        cuda.mem_create(&mapped_handle, kBytes, &prop, 0),
        cuda.mem_address_reserve(&empty, kBytes, 0, 0, 0),
        cuda.mem_address_reserve(&mapped, kBytes, 0, 0, 0),
        cuda.mem_map(mapped, kBytes, 0, mapped_handle, 0),
        cuda.mem_set_access(mapped, kBytes, &access, 1),
        cuda.mem_alloc(&plain, kBytes),
        cuda.event_create(&event, CU_EVENT_DISABLE_TIMING),
        cuda.stream_create(&stream, CU_STREAM_NON_BLOCKING),
        cuda.event_record(event, stream),
        cuda.mem_export_to_shareable_handle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
        cuda.ctx_synchronize(),
    };
    for (const CUresult code : codes)
      if (code != CUDA_SUCCESS) return code;
    return CUDA_SUCCESS;
  }
};

struct Probed {
  const char* name;
  CUresult (*call)(Made&);
};

const DriverTable& cuda() {
  return driver();
}
void* fd_as_handle(int fd) {
  return reinterpret_cast<void*>(static_cast<std::uintptr_t>(fd));
}

constexpr Probed kCalls[] = {
    {"cuMemCreate", [](Made& m) { return cuda().mem_create(&m.scratch_handle, Made::kBytes, &m.prop, 0); }},
    {"cuMemAddressReserve",
     [](Made& m) { return cuda().mem_address_reserve(&m.scratch, Made::kBytes, 0, 0, 0); }},
    {"cuMemMap", [](Made& m) { return cuda().mem_map(m.empty, Made::kBytes, 0, m.handle, 0); }},
    {"cuMemSetAccess", [](Made& m) { return cuda().mem_set_access(m.mapped, Made::kBytes, &m.access, 1); }},
    {"cuMemUnmap", [](Made& m) { return cuda().mem_unmap(m.mapped, Made::kBytes); }},
    {"cuMemRelease", [](Made& m) { return cuda().mem_release(m.mapped_handle); }},
    {"cuMemAddressFree", [](Made& m) { return cuda().mem_address_free(m.empty, Made::kBytes); }},
    {"cuMemExportToShareableHandle",
     [](Made& m) {
       int fd = -1;
       const CUresult code =
           cuda().mem_export_to_shareable_handle(&fd, m.handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
       if (fd >= 0) ::close(fd);
       return code;
     }},
    {"cuMemImportFromShareableHandle",
     [](Made& m) {
       return cuda().mem_import_from_shareable_handle(&m.scratch_handle, fd_as_handle(m.fd),
                                                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
     }},
    {"cuMemAlloc", [](Made& m) { return cuda().mem_alloc(&m.scratch_plain, Made::kBytes); }},
    {"cuMemFree", [](Made& m) { return cuda().mem_free(m.plain); }},
    {"cuMemGetInfo", [](Made& m) { return cuda().mem_get_info(&m.figure, &m.figure2); }},
    {"cuPointerGetAttribute",
     [](Made& m) {
       return cuda().pointer_get_attribute(&m.figure, CU_POINTER_ATTRIBUTE_RANGE_SIZE, m.mapped);
     }},
    {"cuMemsetD8", [](Made& m) { return cuda().memset_d8(m.plain, 0, 8); }},
    {"cuMemcpyDtoH", [](Made& m) { return cuda().memcpy_dtoh(&m.word, m.plain, sizeof m.word); }},
    {"cuEventQuery", [](Made& m) { return cuda().event_query(m.event); }},
    {"cuEventRecord", [](Made& m) { return cuda().event_record(m.event, m.stream); }},
    {"cuEventSynchronize", [](Made& m) { return cuda().event_synchronize(m.event); }},
    {"cuStreamQuery", [](Made& m) { return cuda().stream_query(m.stream); }},
    {"cuStreamSynchronize", [](Made& m) { return cuda().stream_synchronize(m.stream); }},
    {"cuCtxSynchronize", [](Made&) { return cuda().ctx_synchronize(); }},
};

}  // namespace

CUresult capture_probe(std::uint64_t which, Reply* out) {
  if (which >= std::size(kCalls)) return CUDA_ERROR_INVALID_VALUE;
  if (cuda().stream_begin_capture == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  const Probed& probed = kCalls[which];
  std::strncpy(out->blob, probed.name, sizeof out->blob - 1);
  // What a call leaves behind ends with this helper process.
  Made made;
  CUcontext context = nullptr;
  CUstream capturing = nullptr;
  CUresult code = made.prepare();
  if (code == CUDA_SUCCESS) code = cuda().ctx_get_current(&context);
  if (code == CUDA_SUCCESS) code = cuda().stream_create(&capturing, CU_STREAM_NON_BLOCKING);
  if (code == CUDA_SUCCESS) code = cuda().stream_begin_capture(capturing, CU_STREAM_CAPTURE_MODE_GLOBAL);
  if (code != CUDA_SUCCESS) return code;
  CUresult called = CUDA_SUCCESS;
  std::thread([&] {
    cuda().ctx_set_current(context);
    called = probed.call(made);
  }).join();
  CUgraph graph = nullptr;
  out->value[0] = static_cast<std::uint64_t>(called);
  out->value[1] = static_cast<std::uint64_t>(cuda().stream_end_capture(capturing, &graph));
  if (graph != nullptr && cuda().graph_destroy != nullptr) cuda().graph_destroy(graph);
  return CUDA_SUCCESS;
}

}  // namespace apportion::conformance
