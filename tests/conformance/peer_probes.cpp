// Requests that take more than one call: tests/conformance/peer_probes.hpp.
#include "peer_probes.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "driver.hpp"
#include "gpu/device_monitor.hpp"
#include "peer_socket.hpp"

namespace apportion::conformance {

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
    CUmemGenericAllocationHandle handle = 0;
    CUmemAllocationProp prop{};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
    std::size_t total = 0;
    std::size_t free = 0;
    CUdeviceptr address = 0;
    std::uint64_t codes[3];
    codes[0] = static_cast<std::uint64_t>(driver().mem_create(&handle, 64u << 20, &prop, 0));
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
namespace {

// NVML for device 0, loaded at the first use; null where it cannot be.
const DeviceMonitor* monitor() {
  static const auto device = Device::open("0", driver_path());
  static const auto monitor = device ? DeviceMonitor::open(*device) : Result<DeviceMonitor>(device.error());
  if (!monitor) std::fprintf(stderr, "%s\n", monitor.error().message.c_str());
  return monitor ? &*monitor : nullptr;
}

}  // namespace

// NVML over the product's own table; its failures are no CUDA codes, and any of them is "not supported" here.
CUresult nvml_used(Reply* out) {
  const DeviceMonitor* nvml = monitor();
  if (nvml == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  const auto memory = nvml->memory();
  if (!memory) return CUDA_ERROR_NOT_SUPPORTED;
  out->value[0] = memory->used.value;
  return CUDA_SUCCESS;
}

CUresult nvml_persistence(Reply* out) {
  const DeviceMonitor* nvml = monitor();
  if (nvml == nullptr || !nvml->persistence()) return CUDA_ERROR_NOT_SUPPORTED;
  out->value[0] = *nvml->persistence() ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult nvml_process(pid_t pid, Reply* out) {
  const DeviceMonitor* nvml = monitor();
  if (nvml == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  const auto processes = nvml->processes();
  if (!processes) return CUDA_ERROR_NOT_SUPPORTED;
  for (const DeviceProcess& process : *processes) {
    if (process.pid != pid) continue;
    if (!process.used) return CUDA_ERROR_NOT_SUPPORTED;  // a driver that does not know (containers)
    out->value[0] += process.used->value;
    out->value[1] = 1;
  }
  return CUDA_SUCCESS;
}

// Puts copies of a pipe into sockets that nobody reads until the kernel refuses (rule 40).
CUresult flood_fds(std::uint64_t fd_limit, Reply* out) {
  const rlimit limit{fd_limit, fd_limit};
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) return CUDA_ERROR_UNKNOWN;
  int ends[2];
  int pipe_ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0 || ::pipe2(pipe_ends, O_CLOEXEC) != 0)
    return CUDA_ERROR_UNKNOWN;
  for (std::uint64_t sent = 0; sent < 4 * fd_limit; ++sent) {
    Reply payload;
    if (!send_to(ends[0], payload, pipe_ends[0])) {
      out->value[0] = sent;
      out->value[1] = static_cast<std::uint64_t>(errno);
      return CUDA_SUCCESS;
    }
  }
  out->value[0] = 4 * fd_limit;
  return CUDA_SUCCESS;
}

}  // namespace apportion::conformance
