// The states of a chunk (docs/glossary.md), and which counts for whom. The numbers are in the journal: never
// renumber.
#pragma once

#include <cstddef>
#include <cstdint>

namespace apportion {

enum class ChunkState : std::uint8_t {
  vacant = 0,  // no chunk: the slot is unused
  free = 1,
  offered = 2,    // charged and perhaps sent; ends by ACK, NACK or death only
  held = 3,       // its lessee has it mapped
  returning = 4,  // given back by a live lessee
  scrub = 5,      // being overwritten
  making = 6,     // from loose bytes to a chunk
  unmaking = 7,   // from a chunk to loose bytes
  orphan = 8,     // its lessee is not attached at the moment
  zombie = 9,     // its lessee died, or the driver has not confirmed: waits for the device to show the room
};
inline constexpr std::size_t kChunkStates = 10;

// "FREE", "OFFERED" and so on: the word used in logs and in JSON.
[[nodiscard]] const char* to_text(ChunkState state);

// What the session's record says in the journal. Numbers as above.
enum class SessionState : std::uint8_t {
  vacant = 0,
  attached = 1,
  orphan = 2,  // its connection ended, its process may live
  ended = 3,   // gone; its record stays while a chunk names it
};

}  // namespace apportion
