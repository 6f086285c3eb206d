// One stretch of an address range: a hole, a free or a live block, or what the slow path has taken aside.
#pragma once

#include <cstdint>

#include "libclient/stream_tags.hpp"

namespace apportion {

using NodeId = std::uint32_t;
inline constexpr NodeId kNoNode = 0;

enum class BlockState : std::uint8_t {
  unused,  // the node describes nothing
  hole,    // whole slots with nothing mapped
  free,    // mapped, and nobody's
  live,    // a user's
  exact,   // a user's, over whole slots, with a driver handle of its own
  busy     // taken aside by the slow path (growth, trim), or retired for ever
};

struct BlockNode {
  std::uint32_t offset = 0;  // in units, within the range
  std::uint32_t units = 0;
  NodeId prev = kNoNode;  // neighbours in address order
  NodeId next = kNoNode;
  NodeId list_prev = kNoNode;  // in the bin (free) or in the list of holes
  NodeId list_next = kNoNode;
  std::uint32_t epoch = 0;  // of the newest free in it; 0 where clean
  BlockState state = BlockState::unused;
  Tag tag = kClean;
  std::uint16_t bin = 0;  // of a free one: where it is listed
};
static_assert(sizeof(BlockNode) == 32);

// Epochs count synchronises and wrap; 0 is none.
[[nodiscard]] constexpr bool older(std::uint32_t epoch, std::uint32_t than) {
  return static_cast<std::int32_t>(epoch - than) < 0;
}
[[nodiscard]] constexpr std::uint32_t newest(std::uint32_t a, std::uint32_t b) {
  if (a == 0 || b == 0) return a | b;
  return older(a, b) ? b : a;
}

}  // namespace apportion
