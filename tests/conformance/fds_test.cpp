// Rule 40: what Linux does to file descriptors in messages. No driver is involved; the rule is the kernel's.
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "driver.hpp"
#include "scene.hpp"
#include "tests/support/catch.hpp"

namespace apportion::conformance {
namespace {

struct Sockets {
  Sockets() {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    here = OwnedFd(ends[0]);
    there = OwnedFd(ends[1]);
  }
  OwnedFd here;
  OwnedFd there;
};

// Sends `count` copies of one fd in one message: 0 or errno.
int send_fds(int socket, int fd, std::size_t count) {
  char byte = 0;
  iovec body{&byte, 1};
  std::vector<char> control(CMSG_SPACE(count * sizeof(int)));
  msghdr message{};
  message.msg_iov = &body;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(count * sizeof(int));
  for (std::size_t i = 0; i < count; ++i)
    std::memcpy(CMSG_DATA(header) + i * sizeof fd, &fd, sizeof fd);
  return ::sendmsg(socket, &message, MSG_NOSIGNAL) == 1 ? 0 : errno;
}

// Receives with room for `room` fds and closes them: how many came, and whether the kernel cut the rest off.
struct Received {
  std::size_t count = 0;
  bool truncated = false;
};
Received receive_fds(int socket, std::size_t room) {
  char byte = 0;
  iovec body{&byte, 1};
  std::vector<char> control(CMSG_SPACE(room * sizeof(int)));
  msghdr message{};
  message.msg_iov = &body;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = CMSG_LEN(room * sizeof(int));
  REQUIRE(::recvmsg(socket, &message, MSG_CMSG_CLOEXEC) == 1);
  Received received;
  received.truncated = (message.msg_flags & MSG_CTRUNC) != 0;
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header == nullptr) return received;
  received.count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
  for (std::size_t i = 0; i < received.count; ++i) {
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(header) + i * sizeof fd, sizeof fd);
    ::close(fd);
  }
  return received;
}

}  // namespace

TEST_CASE("rule 40: a message carries at most 253 fds", "[rule40]") {
  const Sockets sockets;
  CHECK(send_fds(sockets.here.get(), sockets.here.get(), 253) == 0);
  CHECK(receive_fds(sockets.there.get(), 253).count == 253);
  CHECK(send_fds(sockets.here.get(), sockets.here.get(), 254) == EINVAL);
}

TEST_CASE("rule 40: fds for which the receiver left no room are lost for good, and MSG_CTRUNC says so",
          "[rule40]") {
  const Sockets sockets;
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
  OwnedFd reader(ends[0]);
  OwnedFd writer(ends[1]);
  REQUIRE(send_fds(sockets.here.get(), writer.get(), 4) == 0);
  writer.reset();
  const Received received = receive_fds(sockets.there.get(), 1);
  CHECK(received.count == 1);
  CHECK(received.truncated);
  // No write end is left anywhere: the three others were closed by the kernel.
  char byte = 0;
  CHECK(::read(reader.get(), &byte, 1) == 0);
}

TEST_CASE("rule 40: a non-root sender with too many fds in flight gets ETOOMANYREFS", "[rule40]") {
  // The kernel counts per user: a user that no other run of this test shares.
  const auto own_user = static_cast<uid_t>(60'000 + ::getpid() % 5'000);
  Peer peer({.uid = ::getuid() == 0 ? own_user : 0});
  if (!peer.usable()) APPORTION_SKIP("root here may not become another user");
  Reply flood;
  REQUIRE(peer.call(Op::flood_fds, {64}, &flood) == kOk);
  CHECK(flood.value[0] >= 64);
  CHECK(flood.value[0] <= 66);
  CHECK(flood.value[1] == ETOOMANYREFS);
}

}  // namespace apportion::conformance
