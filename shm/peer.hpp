// Who is at the other end of a socket, from the kernel and not from what it says.
//
// Promises: a pidfd, where there is one, names that very process for ever: F08, a reused pid is never taken
// for it. Never: believes a pid that it could not tie to the connection.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "shm/fd.hpp"
#include "shm/pid_namespace.hpp"
#include "shm/result.hpp"

namespace apportion {

struct Peer {
  // In our pid namespace; 0: unknown (F10: another namespace), so nothing automatic is done to it.
  pid_t pid = 0;
  uid_t uid = 0;
  gid_t gid = 0;
  std::vector<gid_t> groups;     // supplementary
  std::uint64_t start_time = 0;  // clock ticks after boot (/proc/PID/stat, field 22); 0: unknown
  Fd pidfd;                      // readable once the process is gone; none where pid is unknown to us
};

// automatic: SO_PEERPIDFD (Linux 6.5), else by_pid. by_pid: start time, pidfd_open, start time again; a pid
// that changed hands in between is Errc::disconnected.
enum class PidfdSource { automatic, by_pid };

// Errc::disconnected: the peer has died already (F09). Errc::system otherwise.
[[nodiscard]] Result<Peer> identify_peer(int socket, PidfdSource source = PidfdSource::automatic);

// True once the process of the pidfd has ended (it may still be a zombie of its parent).
[[nodiscard]] bool has_exited(const Fd& pidfd);

[[nodiscard]] PidNamespace pid_namespace_of(const Peer& peer);

// Field 22 of /proc/PID/stat. Errc::not_found: no such process.
[[nodiscard]] Result<std::uint64_t> process_start_time(pid_t pid);

// Close-on-exec. Errc::not_found: no such process.
[[nodiscard]] Result<Fd> open_pidfd(pid_t pid);

// Of the process that had this number at that time (0: unknown). Errc::not_found: it has ended, whoever has
// the number now (F08).
[[nodiscard]] Result<Fd> open_pidfd(pid_t pid, std::uint64_t start_time);

}  // namespace apportion
