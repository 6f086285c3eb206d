// A list of chunk ids that comes in parts (LEASES, RELEASE), put together.
//
// Promises: parts are taken in order and under one request_id only, and no more ids than can exist: a client
// that never sends the last part costs a bounded amount of memory (F24). Never: looks at what an id names.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "broker/ids.hpp"
#include "shm/result.hpp"
#include "shm/wire_header.hpp"

namespace apportion {

class PartedIds {
 public:
  explicit PartedIds(std::size_t most) : most_(most) {}

  // True: that was the last part. Errc::protocol: not the part that had to come, or too many ids.
  [[nodiscard]] Result<bool> add(std::uint64_t request, const wire::Part& part,
                                 std::span<const ChunkId> ids) {
    if (part.part != next_ || (next_ != 0 && (request != request_ || part.parts != parts_))) {
      return Error{Errc::protocol, "part " + std::to_string(part.part) + " of a list where part " +
                                       std::to_string(next_) + " had to come"};
    }
    if (ids.size() > most_ - ids_.size())
      return Error{Errc::protocol, "a list of more chunks than the pool can have"};
    request_ = request;
    parts_ = part.parts;
    ++next_;
    ids_.insert(ids_.end(), ids.begin(), ids.end());
    return next_ == parts_;
  }
  // The whole list; the next one starts anew.
  [[nodiscard]] std::vector<ChunkId> take() {
    next_ = 0;
    return std::exchange(ids_, {});
  }

 private:
  std::size_t most_;
  std::uint64_t request_ = 0;
  std::uint32_t parts_ = 0;
  std::uint32_t next_ = 0;
  std::vector<ChunkId> ids_;
};

}  // namespace apportion
