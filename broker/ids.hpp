// The names the core gives to things. A slot is a place in a table (and in the journal); an id is a slot plus
// the generation of its use, so that an id is never used twice and a late message about an old chunk or an
// old session finds nothing instead of a stranger's.
//
// Promises: ids never repeat within a journal's life. Never: a pid is used as a name (F08: pids are reused).
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace apportion {

// slot in the low 24 bits, generation (from 1) above. The value 0 names nothing.
template <typename Tag>
struct SlotId {
  static constexpr unsigned kSlotBits = 24;
  std::uint64_t value = 0;

  [[nodiscard]] static constexpr SlotId of(std::uint32_t slot, std::uint64_t generation) {
    return {(generation << kSlotBits) | slot};
  }
  [[nodiscard]] constexpr std::uint32_t slot() const {
    return static_cast<std::uint32_t>(value & ((1U << kSlotBits) - 1));
  }
  [[nodiscard]] constexpr std::uint64_t generation() const { return value >> kSlotBits; }
  [[nodiscard]] constexpr explicit operator bool() const { return value != 0; }
  friend constexpr auto operator<=>(SlotId, SlotId) = default;
};

using ChunkId = SlotId<struct ChunkTag>;
using SessionId = SlotId<struct SessionTag>;

// Index into the configured jobs, in the order of the setup.
struct JobIndex {
  std::uint32_t value = 0;
  friend constexpr auto operator<=>(JobIndex, JobIndex) = default;
};

// Chosen by the shell: names a connection before it has a session.
struct ConnectionId {
  std::uint64_t value = 0;
  friend constexpr auto operator<=>(ConnectionId, ConnectionId) = default;
};

// Chosen by the client, unique among the outstanding requests of its session.
struct RequestId {
  std::uint64_t value = 0;
  friend constexpr auto operator<=>(RequestId, RequestId) = default;
};

// The key of a session, drawn at random by the broker's shell (the core has no source of randomness).
struct Token {
  std::array<std::uint64_t, 2> words{};
  friend constexpr auto operator<=>(const Token&, const Token&) = default;
};

// A point on CLOCK_MONOTONIC, in nanoseconds. The core has no clock; events bring the time (F46).
struct SteadyNs {
  std::int64_t value = 0;
  friend constexpr auto operator<=>(SteadyNs, SteadyNs) = default;
};

}  // namespace apportion

template <typename Tag>
struct std::hash<apportion::SlotId<Tag>> {
  std::size_t operator()(apportion::SlotId<Tag> id) const noexcept {
    return std::hash<std::uint64_t>{}(id.value);
  }
};
