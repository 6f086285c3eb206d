// Memory of the dead: chunks that are closed on our side and whose bytes the device has not shown again. A
// pidfd says that a process is gone; it does not say that the GPU has finished its work, nor that no forked
// child holds the memory (F05). Only the device's own figures say that the room is there.
//
// Promises: over-counts where the figures are late or rounded; a reading taken before the chunk was closed
// proves nothing. Never: believes a timer. What it cannot know is whose room it was: with several dead at
// once, a session whose whole sum has come back goes first, then the latest dead (the earlier ones have shown
// that something holds them).
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "broker/events.hpp"
#include "broker/ids.hpp"
#include "shm/bytes.hpp"

namespace apportion {

class Graveyard {
 public:
  // granularity: every chunk's size is a multiple of it.
  explicit Graveyard(Bytes granularity) : granularity_(granularity) {}

  void add(ChunkId id, SessionId session, Bytes bytes, SteadyNs closed_at);
  // A slab that its helper has freed, or died with. Until then the device names the helper for it, so that it
  // is part of what others use; a late reading may do so a while longer.
  void add_slab(ChunkId id, SessionId session, Bytes bytes, SteadyNs gone_at);
  // A chunk was made, or given back to the driver: the device may not show it yet.
  void made(Bytes bytes, SteadyNs now);
  void unmade(SteadyNs now) { last_unmade_ = now; }
  [[nodiscard]] bool empty() const { return graves_.empty(); }

  // What the device holds for us by the book, while a reading was taken.
  struct Expected {
    Bytes alive{};       // chunks that exist for certain
    Bytes zombies{};     // all of them, closed or not, but slabs that the helper still has
    bool quiet = false;  // nothing is being made, unmade or awaited
  };
  // The chunks whose room this reading shows; they are forgotten here.
  [[nodiscard]] std::vector<ChunkId> settle(const events::DeviceRoom& room, Expected expected);

 private:
  struct Grave {
    ChunkId id;
    SessionId session;
    Bytes bytes{};
    SteadyNs closed_at;  // of a slab: when every reading shows it as what it is
    bool slab = false;
  };
  struct Made {
    SteadyNs at;
    Bytes bytes{};
  };
  void dig(const Grave& grave);
  [[nodiscard]] Bytes tolerance(Bytes zombies) const;
  [[nodiscard]] std::vector<std::size_t> pick(const std::vector<std::size_t>& eligible, Bytes shown,
                                              Bytes tolerance) const;

  Bytes granularity_;
  std::vector<Grave> graves_;  // oldest first
  // Since there were none, they were not all of one size: room may have been taken for another's, and what is
  // held may be of a size that is no grave's any more.
  bool mixed_ = false;
  std::deque<Made> recent_;
  SteadyNs last_unmade_{-1'000'000'000};
  // What the device shows as used beyond our chunks and the processes it names, when all is quiet: its own
  // reserve, and with no process list everything of others. The lower of the last two readings: used memory
  // and processes are read one after the other, and a context that ends in between is in the first only. Too
  // low keeps a zombie longer, too high would settle one that is still held.
  std::int64_t quiet_residual_ = 0;
  std::optional<std::int64_t> last_quiet_;
};

}  // namespace apportion
