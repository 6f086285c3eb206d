// One driver call for one request: tests/conformance/peer_calls.hpp.
#include "peer_calls.hpp"

#include <unistd.h>

#include <cstring>

#include "driver.hpp"
#include "peer_probes.hpp"

namespace apportion::conformance {
namespace {

using Arguments = const std::uint64_t*;

CUcontext primary = nullptr;

void* as_pointer(std::uint64_t value) {
  return reinterpret_cast<void*>(value);
}

CUresult make_context() {
  CUresult code = driver().device_primary_ctx_retain(&primary, 0);
  if (code == CUDA_SUCCESS) code = driver().ctx_set_current(primary);
  return code;
}

CUresult create(Arguments in, Reply* out) {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  prop.requestedHandleTypes = static_cast<CUmemAllocationHandleType>(in[1]);
  prop.allocFlags.gpuDirectRDMACapable = static_cast<unsigned char>(in[2]);
  CUmemGenericAllocationHandle handle = 0;
  const CUresult code = driver().mem_create(&handle, in[0], &prop, 0);
  out->value[0] = handle;
  return code;
}

CUresult set_access(Arguments in) {
  CUmemAccessDesc access{};
  access.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  access.flags = static_cast<CUmemAccess_flags>(in[2]);
  return driver().mem_set_access(in[0], in[1], &access, 1);
}

CUresult import_number(int fd, Reply* out) {
  CUmemGenericAllocationHandle handle = 0;
  const CUresult code = driver().mem_import_from_shareable_handle(
      &handle, as_pointer(static_cast<std::uint64_t>(fd)), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  out->value[0] = handle;
  return code;
}

CUresult properties(Arguments in, Reply* out) {
  CUmemAllocationProp prop{};
  const CUresult code = driver().mem_get_allocation_properties_from_handle(&prop, in[0]);
  out->value[0] = prop.type;
  out->value[1] = prop.location.type;
  out->value[2] = static_cast<std::uint64_t>(prop.location.id);
  out->value[3] = prop.requestedHandleTypes;
  return code;
}

CUresult fill(Arguments in, bool wait) {
  const CUresult code =
      wait ? driver().memset_d8(in[0], static_cast<unsigned char>(in[2]), in[1])
           : driver().memset_d8_async(in[0], static_cast<unsigned char>(in[2]), in[1], nullptr);
  return code == CUDA_SUCCESS && wait ? driver().ctx_synchronize() : code;
}

CUresult ipc_get(Arguments in, Reply* out) {
  CUipcMemHandle handle{};
  const CUresult code = driver().ipc_get_mem_handle(&handle, in[0]);
  static_assert(sizeof handle == sizeof out->blob);
  std::memcpy(out->blob, &handle, sizeof handle);
  return code;
}

CUresult ipc_open(const Request& request, Reply* out) {
  CUipcMemHandle handle{};
  std::memcpy(&handle, request.blob, sizeof handle);
  CUdeviceptr address = 0;
  const CUresult code =
      driver().ipc_open_mem_handle(&address, handle, static_cast<unsigned>(request.argument[0]));
  out->value[0] = address;
  return code;
}

// A result that is not a driver's: 0 or an fd to send, or an error.
CUresult export_fd(Arguments in, int* fd) {
  return driver().mem_export_to_shareable_handle(fd, in[0], CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
}

}  // namespace

CUresult answer(const Request& request, int received_fd, Reply* out, int* send_fd) {
  const DriverTable& cuda = driver();
  const Arguments in = request.argument;
  switch (request.op) {
    case Op::init:
      return cuda.init(0);
    case Op::context:
      return make_context();
    case Op::drop_context:
      return cuda.ctx_set_current(nullptr);
    case Op::device_count: {
      int count = 0;
      const CUresult code = cuda.device_get_count(&count);
      out->value[0] = static_cast<std::uint64_t>(count);
      return code;
    }
    case Op::create:
      return create(in, out);
    case Op::release:
      return cuda.mem_release(in[0]);
    case Op::reserve: {
      CUdeviceptr address = 0;
      const CUresult code = cuda.mem_address_reserve(&address, in[0], 0, 0, 0);
      out->value[0] = address;
      return code;
    }
    case Op::address_free:
      return cuda.mem_address_free(in[0], in[1]);
    case Op::map:
      return cuda.mem_map(in[0], in[1], in[3], in[2], 0);
    case Op::set_access:
      return set_access(in);
    case Op::unmap:
      return cuda.mem_unmap(in[0], in[1]);
    case Op::export_fd:
      return export_fd(in, send_fd);
    case Op::import_fd: {
      const CUresult code = import_number(received_fd, out);
      out->value[1] = static_cast<std::uint64_t>(received_fd);
      if (in[0] == 0) ::close(received_fd);
      return code;
    }
    case Op::import_number:
      return import_number(static_cast<int>(in[0]), out);
    case Op::close_fd:
      return ::close(static_cast<int>(in[0])) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case Op::retain: {
      CUmemGenericAllocationHandle handle = 0;
      const CUresult code = cuda.mem_retain_allocation_handle(&handle, as_pointer(in[0]));
      out->value[0] = handle;
      return code;
    }
    case Op::properties:
      return properties(in, out);
    case Op::mem_info: {
      std::size_t free = 0;
      std::size_t total = 0;
      const CUresult code = cuda.mem_get_info(&free, &total);
      out->value[0] = free;
      out->value[1] = total;
      return code;
    }
    case Op::mem_alloc: {
      CUdeviceptr address = 0;
      const CUresult code = cuda.mem_alloc(&address, in[0]);
      out->value[0] = address;
      return code;
    }
    case Op::mem_free:
      return cuda.mem_free(in[0]);
    case Op::alloc_managed: {
      if (cuda.mem_alloc_managed == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
      CUdeviceptr address = 0;
      const CUresult code = cuda.mem_alloc_managed(&address, in[0], CU_MEM_ATTACH_GLOBAL);
      out->value[0] = address;
      return code;
    }
    case Op::fill:
      return fill(in, true);
    case Op::fill_async:
      return fill(in, false);
    case Op::copy_async:
      return cuda.memcpy_dtod_async(in[0], in[1], in[2], nullptr);
    case Op::query:
      return cuda.stream_query(nullptr);
    case Op::synchronize:
      return cuda.ctx_synchronize();
    case Op::write_word:
      return cuda.memcpy_htod(in[0], &in[1], sizeof in[1]);
    case Op::read_word:
      return cuda.memcpy_dtoh(&out->value[0], in[0], sizeof out->value[0]);
    case Op::touch:
      return touch(in[0]);
    case Op::ipc_get:
      return ipc_get(in, out);
    case Op::ipc_open:
      return ipc_open(request, out);
    case Op::ipc_close:
      return cuda.ipc_close_mem_handle(in[0]);
    case Op::fork_idle:
      return fork_idle(out);
    case Op::fork_call:
      return fork_call(out);
    case Op::nvml_used:
      return nvml_used(out);
    case Op::nvml_process:
      return nvml_process(static_cast<pid_t>(in[0]), out);
    case Op::flood_fds:
      return flood_fds(in[0], out);
    case Op::nvml_persistence:
      return nvml_persistence(out);
    case Op::address_range: {
      CUdeviceptr base = 0;
      std::size_t bytes = 0;
      const CUresult code = cuda.mem_get_address_range(&base, &bytes, in[0]);
      out->value[0] = base;
      out->value[1] = bytes;
      return code;
    }
    case Op::time_calls:
      return time_calls(in[0], out);
    case Op::whole_device:
      return whole_device(in[0], in[1], out);
    case Op::capture_probe:
      return capture_probe(in[0], out);
    case Op::churn:
      churn(in[0], in[1]);
    case Op::spin:
      return spin(in[0], in[1]);
  }
  return CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace apportion::conformance
