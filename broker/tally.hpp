// Bytes and chunks by state, for one owner of them: a job, a session, or nobody.
// Promises: nothing goes below zero (Bytes aborts). Never: decides.
#pragma once

#include <array>
#include <cstdint>

#include "broker/chunk_state.hpp"
#include "shm/bytes.hpp"

namespace apportion {

class Tally {
 public:
  void add(ChunkState state, Bytes bytes) {
    at(state) += bytes;
    ++chunks_;
  }
  void remove(ChunkState state, Bytes bytes) {
    at(state) -= bytes;
    --chunks_;
  }
  [[nodiscard]] Bytes in(ChunkState state) const { return bytes_[static_cast<std::size_t>(state)]; }
  [[nodiscard]] Bytes total() const {
    Bytes sum{};
    for (const Bytes bytes : bytes_)
      sum += bytes;
    return sum;
  }
  [[nodiscard]] std::uint32_t chunks() const { return chunks_; }
  friend bool operator==(const Tally&, const Tally&) = default;

 private:
  [[nodiscard]] Bytes& at(ChunkState state) { return bytes_[static_cast<std::size_t>(state)]; }
  std::array<Bytes, kChunkStates> bytes_{};
  std::uint32_t chunks_ = 0;
};

}  // namespace apportion
