// What the keeper keeps for the broker: one descriptor per chunk, the listening socket, the device's lock and
// the journal.
//
// Owns: the descriptors. Promises: the id kept with each is its identity; putting an id again replaces it,
// deleting one that is not there does nothing (F53: recovery repeats steps). Never: looks inside a
// descriptor.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "shm/channel.hpp"
#include "shm/fd.hpp"
#include "shm/result.hpp"
#include "shm/wire_keeper.hpp"

namespace apportion {

class KeptFds {
 public:
  // fds.size() == put.part.count, one per entry.
  void put(const wire::Put& put, std::vector<Fd> fds);
  // How many of the ids were there.
  std::uint64_t del(const wire::Del& del);

  // Hands copies of all of it over `socket`: PUTs in parts under `request_id`. The answer is how many. What
  // is kept stays kept. Errors: those of channel::send.
  [[nodiscard]] Result<std::uint64_t> hand_over(int socket, std::uint64_t request_id,
                                                channel::Deadline deadline) const;

  // The file of the listening socket, if that is kept. For the end of all.
  void remove_socket_file() const;

  [[nodiscard]] std::size_t size() const { return kept_.size(); }

 private:
  using Key = std::pair<std::uint32_t, std::uint64_t>;  // kind, id
  struct Kept {
    std::uint64_t bytes = 0;
    Fd fd;
  };
  std::map<Key, Kept> kept_;
};

}  // namespace apportion
