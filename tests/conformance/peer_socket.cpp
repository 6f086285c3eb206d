// Sending and receiving: tests/conformance/peer_socket.hpp.
#include "peer_socket.hpp"

#include <sys/socket.h>

#include <cstring>

namespace apportion::conformance {

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

bool receive_from(int socket, Request* request, int* fd) {
  iovec body{request, sizeof *request};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &body;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  if (::recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != static_cast<ssize_t>(sizeof *request)) return false;
  *fd = -1;
  if (const cmsghdr* header = CMSG_FIRSTHDR(&message)) std::memcpy(fd, CMSG_DATA(header), sizeof *fd);
  return true;
}

}  // namespace apportion::conformance
