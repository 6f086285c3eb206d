// Messages between keeper and broker, over their private socket pair.
//
// PUT{ids}+fds and DEL{ids} are answered by ACK. TAKE asks for everything back: the keeper answers with PUTs
// (in parts, under TAKE's request_id) and then one ACK with the number of fds handed over. READY says that a
// broker serves. PING is answered by PONG. Promises: the id kept with each fd is its identity.
// Never: seen by a client; decode() refuses them from there.
#pragma once

#include "shm/wire_header.hpp"

namespace apportion::wire {

enum class KeptKind : std::uint32_t { chunk = 1, listening_socket = 2, device_lock = 3, journal = 4 };

struct KeptEntry {
  std::uint64_t id = 0;     // chunk id; 0 for the kinds there is one of
  std::uint64_t bytes = 0;  // of a chunk or the journal
  std::uint32_t kind = 0;   // KeptKind
  std::uint32_t reserved = 0;
};
static_assert(sizeof(KeptEntry) == 24);

// One fd per entry, in the order of the entries. An id that is kept already is replaced.
struct Put {
  static constexpr Type kType = Type::put;
  Header header;
  Part part;
  std::array<KeptEntry, kMaxFds> entries{};
};
static_assert(sizeof(Put) == 3120);

// bytes are ignored. An id that is not kept is ignored: recovery repeats steps.
struct Del {
  static constexpr Type kType = Type::del;
  Header header;
  Part part;
  std::array<KeptEntry, kMaxFds> entries{};
};
static_assert(sizeof(Del) == 3120);

struct Ack {
  static constexpr Type kType = Type::ack;
  Header header;
  std::uint64_t count = 0;  // entries stored, dropped, or handed over
  std::uint32_t code = 0;   // 0: done; else 1 + Errc (out of fds, say)
  std::uint32_t reserved = 0;
};
static_assert(sizeof(Ack) == 48);

struct Ping {
  static constexpr Type kType = Type::ping;
  Header header;
};
struct Pong {
  static constexpr Type kType = Type::pong;
  Header header;
};
struct Take {
  static constexpr Type kType = Type::take;
  Header header;
};
struct Ready {
  static constexpr Type kType = Type::ready;
  Header header;
};
static_assert(sizeof(Ping) == 32 && sizeof(Pong) == 32 && sizeof(Take) == 32 && sizeof(Ready) == 32);

}  // namespace apportion::wire
