// Where the broker's socket lies, and how both sides get to it safely.
//
// Promises: a client's failure can name every path it looked at. F21: what lies at the path is replaced only
// when it is a socket of ours that nobody answers; a symlink, a file or another user's socket is refused and
// left alone. Never: reads the environment on its own (Environment::current() does, once, for the caller).
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "shm/fd.hpp"
#include "shm/result.hpp"

namespace apportion {

// What the choice depends on, so that tests need not change the process.
struct Environment {
  std::string apportion_socket;  // $APPORTION_SOCKET; empty: not set
  std::string xdg_runtime_dir;   // $XDG_RUNTIME_DIR; empty: not set
  std::string run_dir = "/run";
  uid_t uid = 0;  // effective

  [[nodiscard]] static Environment current();
};

// Where a broker for `device_uuid` listens: $APPORTION_SOCKET, else /run/apportion/<uuid>/broker.sock for
// root, else $XDG_RUNTIME_DIR/apportion/<uuid>/broker.sock. Errc::not_found where a user has no
// XDG_RUNTIME_DIR. A path too long for a socket is Errc::invalid.
[[nodiscard]] Result<std::string> broker_socket_path(const Environment& environment,
                                                     const std::string& device_uuid);

// Every path a client may try, in order. With APPORTION_SOCKET: that alone (a folder: broker.sock in it).
// Without: the user's folder, then /run; each device folder that exists there, or only `device_uuid`'s.
struct SocketCandidates {
  std::vector<std::string> paths;     // exist now
  std::vector<std::string> searched;  // all places looked at, for the error: patterns where nothing exists
};
[[nodiscard]] SocketCandidates socket_candidates(const Environment& environment,
                                                 const std::string& device_uuid = {});

// Connects to the first candidate that answers. The error lists every path with its reason, and the command
// that starts a broker. Errc::not_found: nobody there; Errc::denied: not for this user.
// Two brokers of different devices with no device_uuid: Errc::invalid, naming both.
struct Connection {
  Fd socket;
  std::string path;
};
[[nodiscard]] Result<Connection> connect_to_broker(const Environment& environment,
                                                   const std::string& device_uuid = {});

// Non-blocking, close-on-exec. Errc::not_found, denied, or system, with the path.
[[nodiscard]] Result<Fd> connect_to(const std::string& path);

// Makes the folder (0755) where it is missing, binds with `mode` and listens. Errc::busy: somebody answers
// there; Errc::denied: something that is not ours to replace.
[[nodiscard]] Result<Fd> listen_at(const std::string& path, mode_t mode, int backlog = 128);

// Unlinks the socket, and its folder where that is a device's own (.../apportion/<uuid>) and empty now. Only
// by who holds the device's lock: so no other broker is between making the folder and listening in it.
void remove_socket(const std::string& path);

// The next connection, non-blocking and close-on-exec. Errc::busy: none waits; Errc::system: out of fds
// (F30).
[[nodiscard]] Result<Fd> accept_from(int listening_socket);

}  // namespace apportion
