// Messages with fds over a SOCK_SEQPACKET Unix socket: one datagram = one message = its fds.
//
// Promises: a received fd is close-on-exec and owned from the moment it arrives, so that no refusal path
// leaks one (F25); truncation of bytes or of fds is always noticed (F24, F26; rule 40: fds lost to MSG_CTRUNC
// are lost for good, so the receiver counts). No SIGPIPE. Never: decodes, retries a half-sent message (there
// is none), or makes a socket blocking. Thread-safe for different sockets; one reader and one writer per
// socket.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <span>
#include <vector>

#include "shm/fd.hpp"
#include "shm/result.hpp"
#include "shm/wire_header.hpp"

namespace apportion::channel {

using Deadline = std::chrono::steady_clock::time_point;

struct Datagram {
  std::array<std::byte, wire::kMaxDatagramBytes> buffer;
  std::size_t size = 0;  // 1 .. kMaxDatagramBytes
  std::vector<Fd> fds;
  // Some fds did not fit (more than kMaxFds, or no free slot under RLIMIT_NOFILE: F26). Those that came are
  // closed already and `fds` is empty; the bytes are complete, so that the receiver can say what it lost.
  bool fds_lost = false;

  [[nodiscard]] std::span<const std::byte> bytes() const { return {buffer.data(), size}; }
};

enum class Sent {
  yes,
  would_block,        // the peer does not read: try when the socket is writable
  too_many_in_flight  // ETOOMANYREFS: fds of ours wait unread in sockets, up to RLIMIT_NOFILE; try later
};

// Non-blocking. The caller keeps its fds and closes them after `yes`: what is in flight has references of its
// own. At most kMaxDatagramBytes and kMaxFds. Errc::disconnected: the peer is gone.
[[nodiscard]] Result<Sent> try_send(int socket, std::span<const std::byte> message,
                                    std::span<const int> fds = {});
// Waits for room until the deadline: Errc::timed_out; Errc::busy for too_many_in_flight.
[[nodiscard]] Status send(int socket, std::span<const std::byte> message, std::span<const int> fds,
                          Deadline deadline);

// Non-blocking; nothing where nothing has come. Errc::disconnected: end of stream. Errc::protocol: an empty
// or an oversized datagram, its fds closed; the stream is at the next message and the caller decides.
[[nodiscard]] Result<bool> try_receive(int socket, Datagram& into);
// Waits until the deadline: Errc::timed_out.
[[nodiscard]] Status receive(int socket, Datagram& into, Deadline deadline);

// Errc::protocol unless exactly `expected` fds came (wire::fds_of); otherwise closes all of them.
[[nodiscard]] Status require_fds(Datagram& datagram, std::size_t expected);

// Two connected ends, non-blocking, close-on-exec: keeper and broker, tests.
struct Pair {
  Fd first;
  Fd second;
};
[[nodiscard]] Result<Pair> make_pair();

}  // namespace apportion::channel
