// The helper process: makes the driver calls that a test names (peer_protocol.hpp) and answers with their
// codes. It ends when its socket does, and with the test that started it.
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "driver.hpp"
#include "gpu/device_monitor.hpp"
#include "peer_protocol.hpp"
#include "ptx.hpp"

namespace apportion::conformance {
namespace {

using Arguments = const std::uint64_t*;

CUcontext primary = nullptr;
CUfunction touch_kernel = nullptr;

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

// On a device only a kernel is sure to reach the memory itself: copies and memsets check the address on the
// host first. The simulator runs no kernels; there its memset is what touches.
CUresult touch(std::uint64_t address) {
  if (on_simulator()) {
    const CUresult code = driver().memset_d8(address, 0x5a, 1);
    return code == CUDA_SUCCESS ? driver().ctx_synchronize() : code;
  }
  if (extra().module_load_data == nullptr || extra().launch_kernel == nullptr)
    return CUDA_ERROR_NOT_SUPPORTED;
  if (touch_kernel == nullptr) {
    CUmodule module = nullptr;
    CUresult code = extra().module_load_data(&module, kPtx);
    if (code == CUDA_SUCCESS) code = extra().module_get_function(&touch_kernel, module, "touch");
    if (code != CUDA_SUCCESS) return code;
  }
  void* arguments[] = {&address};
  const CUresult code = extra().launch_kernel(touch_kernel, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr);
  return code == CUDA_SUCCESS ? driver().ctx_synchronize() : code;
}

CUresult fork_idle(Reply* out) {
  const pid_t test = ::getppid();
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(kPeerSocket);
    // It outlives this process, as the rule wants, but not the test.
    while (::kill(test, 0) == 0)
      ::poll(nullptr, 0, 50);
    ::_exit(0);
  }
  out->value[0] = static_cast<std::uint64_t>(child);
  return child > 0 ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

// Codes of three calls made in a forked child (rule 37): the child tells them over a pipe.
CUresult fork_call(Reply* out) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return CUDA_ERROR_UNKNOWN;
  const pid_t child = ::fork();
  if (child == 0) {
    Reply scratch;
    const std::uint64_t in[4] = {64u << 20, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0, 0};
    std::size_t total = 0;
    std::size_t free = 0;
    CUdeviceptr address = 0;
    std::uint64_t codes[3];
    codes[0] = static_cast<std::uint64_t>(create(in, &scratch));
    codes[1] = static_cast<std::uint64_t>(driver().mem_get_info(&free, &total));
    codes[2] = static_cast<std::uint64_t>(driver().mem_alloc(&address, 64u << 20));
    const bool told = ::write(ends[1], codes, sizeof codes) == static_cast<ssize_t>(sizeof codes);
    ::_exit(told ? 0 : 1);
  }
  ::close(ends[1]);
  const ssize_t length = ::read(ends[0], out->value, 3 * sizeof out->value[0]);
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  return length == static_cast<ssize_t>(3 * sizeof out->value[0]) ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
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

// NVML for device 0, loaded at the first use; null where it cannot be.
const DeviceMonitor* monitor() {
  static const auto device = Device::open("0", driver_path());
  static const auto monitor = device ? DeviceMonitor::open(*device) : Result<DeviceMonitor>(device.error());
  if (!monitor) std::fprintf(stderr, "%s\n", monitor.error().message.c_str());
  return monitor ? &*monitor : nullptr;
}

bool send_to(int socket, const Reply& reply, int fd) {
  iovec body{const_cast<Reply*>(&reply), sizeof reply};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &body;
  message.msg_iovlen = 1;
  if (fd >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  }
  return ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(sizeof reply);
}

// NVML over the product's own table; its failures are no CUDA codes, and any of them is "not supported" here.
CUresult nvml_used(Reply* out) {
  const DeviceMonitor* nvml = monitor();
  if (nvml == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  const auto memory = nvml->memory();
  if (!memory) return CUDA_ERROR_NOT_SUPPORTED;
  out->value[0] = memory->used.value;
  return CUDA_SUCCESS;
}

CUresult nvml_process(Arguments in, Reply* out) {
  const DeviceMonitor* nvml = monitor();
  if (nvml == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  const auto processes = nvml->processes();
  if (!processes) return CUDA_ERROR_NOT_SUPPORTED;
  for (const DeviceProcess& process : *processes) {
    if (process.pid != static_cast<pid_t>(in[0])) continue;
    if (!process.used) return CUDA_ERROR_NOT_SUPPORTED;  // a driver that does not know (containers)
    out->value[0] += process.used->value;
    out->value[1] = 1;
  }
  return CUDA_SUCCESS;
}

// Puts copies of a pipe into sockets that nobody reads until the kernel refuses (rule 40).
CUresult flood_fds(Arguments in, Reply* out) {
  const rlimit limit{in[0], in[0]};
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) return CUDA_ERROR_UNKNOWN;
  int ends[2];
  int pipe_ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0 || ::pipe2(pipe_ends, O_CLOEXEC) != 0)
    return CUDA_ERROR_UNKNOWN;
  for (std::uint64_t sent = 0; sent < 4 * in[0]; ++sent) {
    Reply payload;
    if (!send_to(ends[0], payload, pipe_ends[0])) {
      out->value[0] = sent;
      out->value[1] = static_cast<std::uint64_t>(errno);
      return CUDA_SUCCESS;
    }
  }
  out->value[0] = 4 * in[0];
  return CUDA_SUCCESS;
}

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
      return cuda.mem_map(in[0], in[1], 0, in[2], 0);
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
      return nvml_process(in, out);
    case Op::flood_fds:
      return flood_fds(in, out);
  }
  return CUDA_ERROR_NOT_SUPPORTED;
}

bool receive(Request* request, int* fd) {
  iovec body{request, sizeof *request};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &body;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  if (::recvmsg(kPeerSocket, &message, MSG_CMSG_CLOEXEC) != static_cast<ssize_t>(sizeof *request))
    return false;
  *fd = -1;
  if (const cmsghdr* header = CMSG_FIRSTHDR(&message)) std::memcpy(fd, CMSG_DATA(header), sizeof *fd);
  return true;
}

bool send(const Reply& reply, int fd) {
  return send_to(kPeerSocket, reply, fd);
}

// Enters the namespace or uid that the environment asks for. Returns false where the kernel refuses.
bool enter() {
  if (std::getenv("PEER_NEW_PID_NAMESPACE") != nullptr) {
    if (::unshare(CLONE_NEWPID) != 0) return false;
    const pid_t child = ::fork();  // the first child is the first process of the new namespace
    if (child < 0) return false;
    if (child > 0) {
      ::close(kPeerSocket);
      int status = 0;
      ::waitpid(child, &status, 0);
      std::_Exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
    }
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  }
  if (const char* uid = std::getenv("PEER_UID")) {
    const auto wanted = static_cast<uid_t>(std::strtoul(uid, nullptr, 10));
    if (::setgroups(0, nullptr) != 0 || ::setgid(wanted) != 0 || ::setuid(wanted) != 0) return false;
  }
  return true;
}

int serve() {
  Reply hello;
  hello.code = enter() ? 0 : 1;
  if (!send(hello, -1)) return 1;
  Request request;
  int received = -1;
  while (receive(&request, &received)) {
    Reply reply;
    int fd = -1;
    reply.code = static_cast<std::int32_t>(answer(request, received, &reply, &fd));
    const bool sent = send(reply, fd);
    if (fd >= 0) ::close(fd);
    if (!sent) return 1;
  }
  return 0;
}

}  // namespace
}  // namespace apportion::conformance

int main() {
  // A helper ends with the test program that started it.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  return apportion::conformance::serve();
}
