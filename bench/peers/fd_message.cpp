#include "bench/peers/fd_message.hpp"

#include <cstring>

namespace apportion::bench {

ssize_t send_with_fds(int socket, const void* bytes, std::size_t size, std::span<const int> fds) noexcept {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMostFds)];
  iovec data{const_cast<void*>(bytes), size};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(header), fds.data(), fds.size_bytes());
  }
  return ::sendmsg(socket, &message, MSG_NOSIGNAL);
}

ssize_t receive_with_fds(int socket, void* bytes, std::size_t size, int* fds, std::size_t& count) noexcept {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMostFds)];
  iovec data{bytes, size};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  count = 0;
  const ssize_t got = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  if (got <= 0) return got;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t came = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    std::memcpy(fds + count, CMSG_DATA(header), came * sizeof(int));
    count += came;
  }
  return got;
}

}  // namespace apportion::bench
