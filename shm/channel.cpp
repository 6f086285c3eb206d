#include "shm/channel.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

namespace apportion::channel {

namespace {

struct ControlBuffer {
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int) * wire::kMaxFds)> bytes;
};

Error disconnected() {
  return {Errc::disconnected, "the other side has closed the connection"};
}

// Waits for `events`; false at the deadline.
Result<bool> wait_for(int socket, short events, Deadline deadline) {
  for (;;) {
    const auto left =
        std::max(deadline - std::chrono::steady_clock::now(), std::chrono::steady_clock::duration::zero());
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
    const timespec timeout{seconds.count(), std::chrono::nanoseconds(left - seconds).count()};
    pollfd entry{socket, events, 0};
    const int ready = ::ppoll(&entry, 1, &timeout, nullptr);
    if (ready > 0) return true;
    if (ready == 0) return false;
    if (errno != EINTR) return system_error("cannot wait for a message", errno);
  }
}

// A zero-length SEQPACKET datagram and the end of the stream both read as 0 bytes; only the latter hangs up.
bool hung_up(int socket) {
  pollfd entry{socket, POLLRDHUP, 0};
  return ::poll(&entry, 1, 0) > 0 && (entry.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL)) != 0;
}

// Owns what came before anything else is looked at: no path below can leak an fd (F25).
void adopt_fds(msghdr& header, std::vector<Fd>& fds) {
  for (cmsghdr* control = CMSG_FIRSTHDR(&header); control != nullptr;
       control = CMSG_NXTHDR(&header, control)) {
    if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (control->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(control) + i * sizeof(int), sizeof fd);
      fds.emplace_back(fd);
    }
  }
}

}  // namespace

Result<Sent> try_send(int socket, std::span<const std::byte> message, std::span<const int> fds) {
  if (message.empty() || message.size() > wire::kMaxDatagramBytes || fds.size() > wire::kMaxFds) {
    return Error{Errc::invalid, "a message has 1 to " + std::to_string(wire::kMaxDatagramBytes) +
                                    " bytes and at most " + std::to_string(wire::kMaxFds) + " fds"};
  }
  iovec bytes{const_cast<std::byte*>(message.data()), message.size()};
  ControlBuffer control;
  msghdr header{};
  header.msg_iov = &bytes;
  header.msg_iovlen = 1;
  if (!fds.empty()) {
    header.msg_control = control.bytes.data();
    header.msg_controllen = CMSG_SPACE(fds.size_bytes());
    std::memset(control.bytes.data(), 0, header.msg_controllen);
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(rights), fds.data(), fds.size_bytes());
  }
  for (;;) {
    if (::sendmsg(socket, &header, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return Sent::yes;
    switch (errno) {
      case EINTR:
        continue;
      case EAGAIN:
        return Sent::would_block;
      case ETOOMANYREFS:
        return Sent::too_many_in_flight;  // rule 40
      case EPIPE:
      case ECONNRESET:
      case ENOTCONN:
        return disconnected();
      default:
        return system_error("cannot send a message", errno);
    }
  }
}

Status send(int socket, std::span<const std::byte> message, std::span<const int> fds, Deadline deadline) {
  for (;;) {
    const Result<Sent> sent = try_send(socket, message, fds);
    if (!sent) return sent.error();
    switch (*sent) {
      case Sent::yes:
        return Done{};
      case Sent::too_many_in_flight:
        return Error{Errc::busy,
                     "too many fds wait unread in sockets (RLIMIT_NOFILE limits them); try again"};
      case Sent::would_block:
        break;
    }
    const Result<bool> ready = wait_for(socket, POLLOUT, deadline);
    if (!ready) return ready.error();
    if (!*ready) return Error{Errc::timed_out, "the other side does not read its messages"};
  }
}

Result<bool> try_receive(int socket, Datagram& into) {
  into.size = 0;
  into.fds.clear();
  into.fds_lost = false;
  ControlBuffer control;
  bool reset_seen = false;
  for (;;) {
    iovec bytes{into.buffer.data(), into.buffer.size()};
    msghdr header{};
    header.msg_iov = &bytes;
    header.msg_iovlen = 1;
    header.msg_control = control.bytes.data();
    header.msg_controllen = control.bytes.size();
    const ssize_t length = ::recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (length < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN) return false;
      // A peer that died with messages of ours unread leaves this error in front of its own last messages.
      if (errno == ECONNRESET && !std::exchange(reset_seen, true)) continue;
      if (errno == ECONNRESET || errno == ENOTCONN) return disconnected();
      return system_error("cannot receive a message", errno);
    }
    adopt_fds(header, into.fds);
    if ((header.msg_flags & MSG_CTRUNC) != 0) {  // F25, F26
      into.fds.clear();
      into.fds_lost = true;
    }
    if (length == 0) {
      const bool carried = !into.fds.empty() || into.fds_lost;
      into.fds.clear();
      if (!carried && hung_up(socket)) return disconnected();
      return Error{Errc::protocol, "an empty message"};
    }
    if ((header.msg_flags & MSG_TRUNC) != 0) {  // F24
      into.fds.clear();
      return Error{Errc::protocol,
                   "a message of more than " + std::to_string(wire::kMaxDatagramBytes) + " bytes"};
    }
    into.size = static_cast<std::size_t>(length);
    return true;
  }
}

Status receive(int socket, Datagram& into, Deadline deadline) {
  for (;;) {
    const Result<bool> received = try_receive(socket, into);
    if (!received) return received.error();
    if (*received) return Done{};
    const Result<bool> ready = wait_for(socket, POLLIN, deadline);
    if (!ready) return ready.error();
    if (!*ready) return Error{Errc::timed_out, "no answer came in time"};
  }
}

Status require_fds(Datagram& datagram, std::size_t expected) {
  const bool lost = datagram.fds_lost;
  const std::size_t came = datagram.fds.size();
  if (!lost && came == expected) return Done{};
  datagram.fds.clear();
  if (lost) {
    return Error{Errc::protocol,
                 "fds of a message were lost: more than " + std::to_string(wire::kMaxFds) +
                     " were sent, or this process has no free fd (raise RLIMIT_NOFILE: ulimit -n)"};
  }
  return Error{Errc::protocol, "a message came with " + std::to_string(came) + " fds where " +
                                   std::to_string(expected) + " belong to it"};
}

Result<Pair> make_pair() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
    return system_error("cannot make a socket pair", errno);
  }
  return Pair{Fd(ends[0]), Fd(ends[1])};
}

}  // namespace apportion::channel
