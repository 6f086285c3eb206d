// A message with descriptors over a socket, by the bare system calls; blocking where the socket is.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <cstddef>
#include <span>

namespace apportion::bench {

inline constexpr std::size_t kMostFds = 128;

// Bytes sent, as sendmsg.
ssize_t send_with_fds(int socket, const void* bytes, std::size_t size, std::span<const int> fds) noexcept;
// Bytes received, as recvmsg; the descriptors that came lie in `fds`, close-on-exec, and `count` says how
// many. `fds` has room for kMostFds.
ssize_t receive_with_fds(int socket, void* bytes, std::size_t size, int* fds, std::size_t& count) noexcept;

}  // namespace apportion::bench
