#include "broker/graveyard.hpp"

#include <algorithm>

namespace apportion {

namespace {

// NVML gives one sample to all who ask within a short time; what was made just before may be missing in it.
constexpr std::int64_t kReadingLagNs = 100'000'000;

std::int64_t as_signed(Bytes bytes) {
  return static_cast<std::int64_t>(bytes.value);
}

}  // namespace

void Graveyard::add(ChunkId id, SessionId session, Bytes bytes, SteadyNs closed_at) {
  dig({id, session, bytes, closed_at});
}

void Graveyard::add_slab(ChunkId id, SessionId session, Bytes bytes, SteadyNs gone_at) {
  dig({id, session, bytes, {gone_at.value + kReadingLagNs}, true});
}

void Graveyard::dig(const Grave& grave) {
  mixed_ = !graves_.empty() && (mixed_ || grave.bytes != graves_.front().bytes);
  graves_.push_back(grave);
}

void Graveyard::made(Bytes bytes, SteadyNs now) {
  while (!recent_.empty() && recent_.front().at.value + 2 * kReadingLagNs < now.value)
    recent_.pop_front();
  recent_.push_back({now, bytes});
}

// How far the device's figures may be off by rounding without a chunk too many being settled: half of the
// smallest step that sums of zombies can differ by.
Bytes Graveyard::tolerance(Bytes zombies) const {
  Bytes sum{};
  for (const Grave& grave : graves_)
    sum += grave.bytes;
  return {(!mixed_ && sum == zombies ? graves_.front().bytes : granularity_).value / 2};
}

std::vector<ChunkId> Graveyard::settle(const events::DeviceRoom& room, Expected expected) {
  // Chunks that the reading may not show yet must not hide zombies that it does show.
  Bytes alive = expected.alive;
  bool all_shown = true;
  for (const Made& made : recent_) {
    if (made.at.value + kReadingLagNs <= room.read_at.value) continue;
    alive = saturating_sub(alive, made.bytes);
    all_shown = false;
  }
  const Bytes used = saturating_sub(room.total, room.free);
  const std::int64_t residual =
      as_signed(used) - as_signed(room.foreign.value_or(Bytes{})) - as_signed(alive);
  if (graves_.empty()) {
    // Where no processes are named, the helper's context would pass for what is always there, and hide as
    // much of a dead client's memory when it has gone (F05).
    if (room.helper && !room.foreign) return {};
    if (!expected.quiet || !all_shown || last_unmade_.value + kReadingLagNs > room.read_at.value) return {};
    quiet_residual_ = std::min(residual, last_quiet_.value_or(residual));
    last_quiet_ = residual;
    return {};
  }
  for (const Grave& grave : graves_)
    if (grave.slab && grave.closed_at > room.read_at) expected.zombies -= grave.bytes;
  const Bytes slack = tolerance(expected.zombies);
  const std::int64_t held = std::max<std::int64_t>(0, residual - quiet_residual_ - as_signed(slack));
  const Bytes shown = saturating_sub(expected.zombies, Bytes{static_cast<std::uint64_t>(held)});

  std::vector<std::size_t> eligible;
  for (std::size_t i = 0; i < graves_.size(); ++i) {
    if (graves_[i].closed_at <= room.read_at) eligible.push_back(i);
  }
  std::vector<std::size_t> picked = pick(eligible, shown, slack);
  std::sort(picked.begin(), picked.end(), std::greater<>());
  std::vector<ChunkId> settled;
  for (const std::size_t i : picked) {
    settled.push_back(graves_[i].id);
    graves_.erase(graves_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return settled;
}

std::vector<std::size_t> Graveyard::pick(const std::vector<std::size_t>& eligible, Bytes shown,
                                         Bytes tolerance) const {
  // Sessions by their latest grave, newest first.
  std::vector<SessionId> sessions;
  for (auto i = eligible.rbegin(); i != eligible.rend(); ++i) {
    const SessionId session = graves_[*i].session;
    if (std::find(sessions.begin(), sessions.end(), session) == sessions.end()) sessions.push_back(session);
  }
  const auto graves_of = [&](SessionId session) {
    std::vector<std::size_t> graves;
    for (const std::size_t i : eligible) {
      if (graves_[i].session == session) graves.push_back(i);
    }
    return graves;
  };
  for (const SessionId session : sessions) {
    std::vector<std::size_t> graves = graves_of(session);
    Bytes sum{};
    for (const std::size_t i : graves)
      sum += graves_[i].bytes;
    if (sum <= shown && shown <= sum + tolerance) return graves;
  }
  std::vector<std::size_t> picked;
  for (const SessionId session : sessions) {
    for (const std::size_t i : graves_of(session)) {
      if (graves_[i].bytes > shown) continue;
      shown -= graves_[i].bytes;
      picked.push_back(i);
    }
  }
  return picked;
}

}  // namespace apportion
