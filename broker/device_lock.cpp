#include "broker/device_lock.hpp"

#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "shm/peer.hpp"

namespace apportion {
namespace {

// The kernel remembers who called listen(): a connection's peer is that process.
std::string owner_of(const sockaddr_un& address, socklen_t length) {
  const Fd probe(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!probe || connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0)
    return "somebody";
  Result<Peer> peer = identify_peer(probe.get());
  if (!peer.ok()) return "a broker";
  return "pid " + std::to_string(peer->pid) + " of uid " + std::to_string(peer->uid);
}

}  // namespace

Result<Fd> lock_device(const std::string& uuid) {
  Fd lock(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!lock) return system_error("cannot make the device's lock", errno);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = "apportion/" + uuid;  // after a NUL: abstract
  if (name.size() + 1 >= sizeof address.sun_path)
    return Error{Errc::invalid, "the device's UUID is too long: " + uuid};
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (bind(lock.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
    if (errno != EADDRINUSE) return system_error("cannot take the lock of device " + uuid, errno);
    return Error{Errc::busy, "device " + uuid + " has a broker already: " + owner_of(address, length) +
                                 "; use that one (apportion status), or stop it first"};
  }
  if (Status owned = own_lock(lock); !owned.ok()) return owned.error();
  return lock;
}

Status own_lock(const Fd& lock) {
  // F20: nobody accepts here, and each refused broker's question for our pid stays in the queue.
  if (listen(lock.get(), SOMAXCONN) != 0) return system_error("cannot take the device's lock", errno);
  return Done{};
}

}  // namespace apportion
