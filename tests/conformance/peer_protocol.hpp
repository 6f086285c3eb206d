// What a test says to a helper process, and what it answers: one request, one datagram; one answer, one
// datagram and at most one fd. The helper makes exactly the driver call that is named, nothing around it,
// and answers with the driver's own code.
#pragma once

#include <cstdint>

namespace apportion::conformance {

enum class Op : std::uint32_t {
  init,              // cuInit(0)
  context,           // retain the primary context of device 0 and make it current
  drop_context,      // no current context on this thread
  device_count,      // -> count
  create,            // bytes, handle types, RDMA flag -> handle
  release,           // handle
  reserve,           // bytes -> address
  address_free,      // address, bytes
  map,               // address, bytes, handle
  set_access,        // address, bytes, flags
  unmap,             // address, bytes
  export_fd,         // handle -> fd
  import_fd,         // (fd) -> handle; the helper keeps its copy of the fd open until close_fd
  import_number,     // fd number -> handle: imports whatever that number is in the helper
  close_fd,          // fd number
  retain,            // address -> handle
  properties,        // handle -> allocation type, location type, location id, handle types
  mem_info,          // -> free, total
  mem_alloc,         // bytes -> address
  mem_free,          // address
  alloc_managed,     // bytes -> address
  fill,              // address, bytes, value; waits for it
  fill_async,        // address, bytes, value; does not wait
  copy_async,        // target, source, bytes: device to device; does not wait
  query,             // cuStreamQuery of the default stream
  synchronize,       // cuCtxSynchronize
  write_word,        // address, value: cuMemcpyHtoD of 8 bytes
  read_word,         // address -> value: cuMemcpyDtoH of 8 bytes
  touch,             // address: the device itself writes one byte there, and the helper waits for it
  ipc_get,           // address -> 64 bytes
  ipc_open,          // (64 bytes), flags -> address
  ipc_close,         // address
  fork_idle,         // forks a child that waits until it is killed -> child's pid
  fork_call,         // forks a child that calls the driver -> codes of create, mem_info, mem_alloc
  nvml_used,         // -> used bytes of the device, as NVML tells them
  nvml_process,      // pid -> its bytes, and 1 where NVML lists it
  nvml_persistence,  // -> 1 where persistence mode is on
  address_range,     // address -> base, bytes: cuMemGetAddressRange
  time_calls,        // and the following: peer_probes.hpp
  whole_device,
  capture_probe,
  spin,
  churn,      // seed; takes and gives back memory for ever and never answers
  flood_fds,  // fd limit -> fds in flight when the kernel refused, errno; makes no driver call
};

struct Request {
  Op op{};
  std::uint32_t reserved = 0;
  std::uint64_t argument[4] = {};
  char blob[64] = {};
};

struct Reply {
  std::int32_t code = 0;
  std::int32_t fd_follows = 0;
  std::uint64_t value[4] = {};
  char blob[64] = {};
};

// The helper's end of the socket.
inline constexpr int kPeerSocket = 3;

}  // namespace apportion::conformance
