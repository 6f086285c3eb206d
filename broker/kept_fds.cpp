#include "broker/kept_fds.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>

#include "shm/wire.hpp"

namespace apportion {
namespace {

// Rule 40: what a non-root keeper has in flight is limited, and the broker is reading at the other end.
Status send_patiently(int socket, std::span<const std::byte> message, std::span<const int> fds,
                      channel::Deadline deadline) {
  while (true) {
    Status sent = channel::send(socket, message, fds, deadline);
    if (sent.ok() || sent.error().code != Errc::busy || std::chrono::steady_clock::now() >= deadline)
      return sent;
    poll(nullptr, 0, 5);
  }
}

}  // namespace

void KeptFds::put(const wire::Put& put, std::vector<Fd> fds) {
  APPORTION_CHECK(fds.size() == put.part.count);
  for (std::size_t i = 0; i < fds.size(); ++i) {
    const wire::KeptEntry& entry = put.entries[i];
    kept_[{entry.kind, entry.id}] = Kept{entry.bytes, std::move(fds[i])};
  }
}

std::uint64_t KeptFds::del(const wire::Del& del) {
  std::uint64_t dropped = 0;
  for (std::size_t i = 0; i < del.part.count; ++i)
    dropped += kept_.erase({del.entries[i].kind, del.entries[i].id});
  return dropped;
}

Result<std::uint64_t> KeptFds::hand_over(int socket, std::uint64_t request_id,
                                         channel::Deadline deadline) const {
  auto next = kept_.begin();
  Status status = Done{};
  wire::for_each_part<wire::Put>(
      kept_.size(), wire::kMaxFds, request_id, 0, [&](wire::Put& put, std::size_t, std::size_t count) {
        std::vector<int> fds;
        for (std::size_t i = 0; i < count; ++i, ++next) {
          const auto& [key, kept] = *next;
          put.entries[i] = {.id = key.second, .bytes = kept.bytes, .kind = key.first};
          fds.push_back(kept.fd.get());
        }
        if (status.ok()) status = send_patiently(socket, wire::bytes_of(put), fds, deadline);
      });
  if (!status.ok()) return status.error();
  return static_cast<std::uint64_t>(kept_.size());
}

void KeptFds::remove_socket_file() const {
  const auto socket = kept_.find({static_cast<std::uint32_t>(wire::KeptKind::listening_socket), 0});
  if (socket == kept_.end()) return;
  sockaddr_un address{};
  socklen_t length = sizeof address - 1;  // a path of full length has no end of its own
  if (getsockname(socket->second.fd.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0) return;
  if (address.sun_family == AF_UNIX && address.sun_path[0] != '\0') unlink(address.sun_path);
}

}  // namespace apportion
