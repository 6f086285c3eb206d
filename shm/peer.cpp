#include "shm/peer.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <string>
#include <string_view>

#ifndef SO_PEERPIDFD  // Linux 6.5
#define SO_PEERPIDFD 77
#endif
#ifndef SO_PEERGROUPS  // Linux 4.13
#define SO_PEERGROUPS 59
#endif

namespace apportion {

namespace {

Error gone() {
  return {Errc::disconnected, "the process at the other end has ended"};
}

Result<std::vector<gid_t>> groups_of(int socket) {
  std::vector<gid_t> groups(32);
  for (;;) {
    auto bytes = static_cast<socklen_t>(groups.size() * sizeof(gid_t));
    if (::getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &bytes) == 0) {
      groups.resize(bytes / sizeof(gid_t));
      return groups;
    }
    if (errno != ERANGE) return system_error("cannot read the groups of a client", errno);
    groups.resize(bytes / sizeof(gid_t));  // the kernel says how many there are
  }
}

bool hung_up(int socket) {
  pollfd entry{socket, 0, 0};
  return ::poll(&entry, 1, 0) > 0 && (entry.revents & (POLLHUP | POLLERR | POLLNVAL)) != 0;
}

// Sets pidfd and start_time by number. A number can change hands (F08): the start time read on both sides of
// pidfd_open shows that it did not meanwhile, and a connection that is still up afterwards that it did not
// before. What remains is a peer that died after forking a child that keeps its socket, and whose number is
// taken again, all before we get here; only SO_PEERPIDFD closes that.
Status tie_by_pid(int socket, Peer& peer) {
  if (peer.pid == 0) return Done{};
  const Result<std::uint64_t> before = process_start_time(peer.pid);
  if (!before) return gone();
  Result<Fd> pidfd = open_pidfd(peer.pid);
  if (!pidfd) return pidfd.error().code == Errc::not_found ? gone() : pidfd.error();
  const Result<std::uint64_t> after = process_start_time(peer.pid);
  if (!after || *after != *before || has_exited(*pidfd) || hung_up(socket)) return gone();
  peer.pidfd = std::move(*pidfd);
  peer.start_time = *before;
  return Done{};
}

// The kernel keeps the peer's identity in the socket: no number is looked up, nothing can be reused.
// False where the kernel is older than that.
Result<bool> tie_by_socket(int socket, Peer& peer) {
  int number = -1;
  socklen_t bytes = sizeof number;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &number, &bytes) != 0) {
    if (errno == ENOPROTOOPT || errno == EINVAL || errno == EOPNOTSUPP) return false;
    if (errno == ESRCH || errno == ENODATA) return gone();
    return system_error("cannot open a client's pidfd", errno);
  }
  peer.pidfd = Fd(number);
  ::fcntl(number, F_SETFD, FD_CLOEXEC);
  if (peer.pid != 0) {
    const Result<std::uint64_t> start = process_start_time(peer.pid);
    if (start) peer.start_time = *start;  // where /proc is hidden from us: unknown
  }
  // Still alive after the start time was read: so it was its own.
  if (has_exited(peer.pidfd)) return gone();
  return true;
}

}  // namespace

Result<Peer> identify_peer(int socket, PidfdSource source) {
  ucred credentials{};
  socklen_t bytes = sizeof credentials;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &bytes) != 0) {
    return system_error("cannot read the identity of a client", errno);
  }
  Peer peer;
  peer.pid = credentials.pid;
  peer.uid = credentials.uid;
  peer.gid = credentials.gid;
  Result<std::vector<gid_t>> groups = groups_of(socket);
  if (!groups) return groups.error();
  peer.groups = std::move(*groups);

  if (source == PidfdSource::automatic) {
    const Result<bool> tied = tie_by_socket(socket, peer);
    if (!tied) return tied.error();
    if (*tied) return peer;
  }
  if (Status tied = tie_by_pid(socket, peer); !tied) return tied.error();
  return peer;
}

bool has_exited(const Fd& pidfd) {
  pollfd entry{pidfd.get(), POLLIN, 0};
  return pidfd && ::poll(&entry, 1, 0) > 0;
}

PidNamespace pid_namespace_of(const Peer& peer) {
  if (peer.pid == 0) return PidNamespace::other;  // it has no number here
  struct stat own {};
  struct stat theirs {};
  const std::string path = "/proc/" + std::to_string(peer.pid) + "/ns/pid";
  if (::stat("/proc/self/ns/pid", &own) != 0 || ::stat(path.c_str(), &theirs) != 0)
    return PidNamespace::unknown;
  // F08: still alive after the look, so it was its own.
  if (!peer.pidfd || has_exited(peer.pidfd)) return PidNamespace::unknown;
  return own.st_dev == theirs.st_dev && own.st_ino == theirs.st_ino ? PidNamespace::same
                                                                    : PidNamespace::other;
}

Result<std::uint64_t> process_start_time(pid_t pid) {
  const std::string path = "/proc/" + std::to_string(pid) + "/stat";
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) {
    Error error = system_error("cannot open " + path, errno);
    if (errno == ENOENT) error.code = Errc::not_found;
    return error;
  }
  std::array<char, 2048> buffer;
  const ssize_t length = ::read(file.get(), buffer.data(), buffer.size());
  if (length <= 0) return Error{Errc::not_found, "no process " + std::to_string(pid)};
  std::string_view text(buffer.data(), static_cast<std::size_t>(length));
  // Field 2 is the command's name in parentheses and may hold anything, spaces and parentheses too.
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string_view::npos)
    return Error{Errc::system, path + " cannot be read: no command name"};
  text.remove_prefix(name_end + 1);
  for (int field = 3; field <= 22; ++field) {
    const std::size_t space = text.find(' ');
    if (space == std::string_view::npos) return Error{Errc::system, path + " cannot be read: too few fields"};
    text.remove_prefix(space + 1);
  }
  std::uint64_t ticks = 0;
  if (std::from_chars(text.data(), text.data() + text.size(), ticks).ec != std::errc{}) {
    return Error{Errc::system, path + " cannot be read: no start time"};
  }
  return ticks;
}

Result<Fd> open_pidfd(pid_t pid) {
  Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (pidfd) return pidfd;
  Error error = system_error("cannot open a pidfd of process " + std::to_string(pid), errno);
  if (errno == ESRCH) error.code = Errc::not_found;
  return error;
}

Result<Fd> open_pidfd(pid_t pid, std::uint64_t start_time) {
  Result<Fd> pidfd = open_pidfd(pid);
  if (!pidfd) return pidfd;
  const Result<std::uint64_t> now = process_start_time(pid);
  const bool another = now && start_time != 0 && *now != start_time;
  // A zombie of its parent has ended, too; and where its number changed hands meanwhile, so has it.
  if (another || has_exited(*pidfd))
    return Error{Errc::not_found, "process " + std::to_string(pid) + " has ended"};
  return pidfd;
}

}  // namespace apportion
