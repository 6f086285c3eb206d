#include "broker/kept_fds.hpp"

#include "shm/wire.hpp"

namespace apportion {

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
        if (status.ok()) status = channel::send(socket, wire::bytes_of(put), fds, deadline);
      });
  if (!status.ok()) return status.error();
  return static_cast<std::uint64_t>(kept_.size());
}

}  // namespace apportion
