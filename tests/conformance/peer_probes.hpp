// Requests to a helper process that take more than one call: forks, NVML, floods, timings.
#pragma once

#include <cuda.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>

#include "peer_protocol.hpp"

namespace apportion::conformance {

// A forked child that waits until it is killed or the test has ended -> its pid.
CUresult fork_idle(Reply* out);
// Codes of cuMemCreate, cuMemGetInfo and cuMemAlloc in a forked child (rule 37).
CUresult fork_call(Reply* out);

// NVML of device 0, over the product's own tables. What NVML refuses is "not supported".
CUresult nvml_used(Reply* out);
CUresult nvml_process(pid_t pid, Reply* out);
CUresult nvml_persistence(Reply* out);

// Puts copies of a pipe into sockets that nobody reads, under RLIMIT_NOFILE `fd_limit`, until the kernel
// refuses (rule 40) -> how many, errno.
CUresult flood_fds(std::uint64_t fd_limit, Reply* out);

// Median nanoseconds of create, map, set access, unmap, release, export, import at `bytes`, in the blob as
// eight 64-bit words, the last one free. Needs a context.
CUresult time_calls(std::size_t bytes, Reply* out);

// Makes handles of `bytes` until the device refuses or `limit_ms` passed, with an fd of each as long as fds
// last; gives all back -> handles, fds, milliseconds, the code that ended it.
CUresult whole_device(std::size_t bytes, std::uint64_t limit_ms, Reply* out);

// Makes call number `which` in another thread while this one captures a stream in GLOBAL mode -> its code,
// the code of cuStreamEndCapture; its name in the blob. INVALID_VALUE past the last one. Needs a context.
CUresult capture_probe(std::uint64_t which, Reply* out);

// Creates, maps, exports, imports, unmaps and releases at random until the process is killed. Needs no
// context.
[[noreturn]] void churn(std::uint64_t seed, std::size_t bytes);

// Launches the spin kernel on `address` (8 KiB are written) for `rounds` rounds, and does not wait. The
// kernel goes on when this process is killed only if the device lets it.
CUresult spin(std::uint64_t address, std::uint64_t rounds);
// One byte at `address`, written by the device itself, and waited for: a kernel on a device, a memset on the
// simulator, which runs no kernels.
CUresult touch(std::uint64_t address);

}  // namespace apportion::conformance
