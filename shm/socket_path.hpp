// Where the broker's socket lies, and how both sides get to it safely.
//
// A client that looks for one: shm/find_broker.hpp.
//
// Promises: a path that somebody named is that one or an error that says who named it. F21: what lies at the
// path is replaced only when it is a socket of ours that nobody answers; a symlink, a file or another user's
// socket is refused and left alone. Never: reads the environment on its own (Environment::current() does,
// once, for the caller).
#pragma once

#include <sys/types.h>

#include <string>

#include "shm/fd.hpp"
#include "shm/result.hpp"

namespace apportion {

// What the choice depends on, so that tests need not change the process.
struct Environment {
  std::string apportion_socket;  // $APPORTION_SOCKET; empty: not set
  std::string xdg_runtime_dir;   // $XDG_RUNTIME_DIR; empty: not set
  std::string run_dir = "/run";
  uid_t uid = 0;                              // effective
  std::string named_by = "APPORTION_SOCKET";  // who set apportion_socket, for messages

  [[nodiscard]] static Environment current();
};

inline constexpr std::size_t kMostSocketPath = 107;  // bytes: sockaddr_un ends there

// BASE/apportion/DEVICE/broker.sock.
[[nodiscard]] std::string socket_in(const std::string& base, const std::string& device_uuid);

// The path that a non-empty apportion_socket stands for: itself, or broker.sock in it where it is a folder.
// Errc::invalid: a relative path (who reconnects may be in another folder by then); too long for a socket.
[[nodiscard]] Result<std::string> named_socket(const Environment& environment);

// Where a broker for `device_uuid` listens: $APPORTION_SOCKET, else /run/apportion/<uuid>/broker.sock for
// root, else $XDG_RUNTIME_DIR/apportion/<uuid>/broker.sock. Errc::not_found where a user has no
// XDG_RUNTIME_DIR. A path too long for a socket, or a relative one, is Errc::invalid.
[[nodiscard]] Result<std::string> broker_socket_path(const Environment& environment,
                                                     const std::string& device_uuid);

// Non-blocking, close-on-exec. Errc::not_found, denied, busy (too many wait there), invalid (another kind of
// socket, too long a path) or system, with the path.
[[nodiscard]] Result<Fd> connect_to(const std::string& path);

// Makes the folder (0755) where it is missing, binds with `mode` and listens. Errc::busy: somebody answers
// there; Errc::denied: something that is not ours to replace.
[[nodiscard]] Result<Fd> listen_at(const std::string& path, mode_t mode, int backlog = 128);

// The next connection, non-blocking and close-on-exec. Errc::busy: none waits; Errc::system: out of fds
// (F30).
[[nodiscard]] Result<Fd> accept_from(int listening_socket);

}  // namespace apportion
