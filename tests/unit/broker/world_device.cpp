// The world's helper, and what its device shows.
#include <optional>

#include "tests/unit/broker/world.hpp"

namespace apportion::testing {

namespace {

constexpr Bytes kContext = 100_MiB;  // of the helper

}  // namespace

void World::scrub(const actions::ScrubChunks& scrub, std::optional<How> fails) {
  static constexpr const char* kWhy[] = {"no helper", "the driver refused", "the helper died"};
  std::vector<ChunkId> ids;
  for (const auto& piece : scrub.chunks) {
    ids.push_back(piece.id);
    if (!fails && unwritable.contains(piece.id)) fails = How::refused;
    APPORTION_CHECK((piece.slab ? slabs_ : handles_).contains(piece.id) && size_.at(piece.id) == piece.bytes);
    APPORTION_CHECK(!dead_helpers_hold_.contains(piece.id));
    for (const Client& client : clients_)
      APPORTION_CHECK(!client.has.contains(piece.id));
  }
  for (const ChunkId id : ids) {
    if (!fails) truth_[id].bytes = Truth::Bytes::zeros;
    if (fails != How::lost) continue;
    truth_[id].died = true;
    dead_helpers_hold_.insert(id);
  }
  if (!fails) return feed(events::Scrubbed{ids});
  feed(events::ScrubFailed{ids, kWhy[static_cast<std::size_t>(*fails)], {now}, *fails});
}

void World::help(std::optional<How> fails) {
  const Action next = helper_.front();
  helper_.pop_front();
  if (const auto* one = std::get_if<actions::ScrubChunks>(&next)) return scrub(*one, fails);
  if (const auto* make = std::get_if<actions::MakeSlab>(&next)) {
    if (fails) return feed(events::MakeFailed{make->id, false, "cuMemAlloc failed", {now}});
    APPORTION_CHECK(!size_.contains(make->id));  // an id is never used twice
    size_[make->id] = make->bytes;
    slabs_.insert(make->id);
    return feed(events::ChunkMade{make->id, {now}});
  }
  const ChunkId id = std::get<actions::FreeSlab>(next).id;
  // Rule 35: nobody has it open, no dead process either.
  for (std::size_t i = 0; i < clients_.size(); ++i)
    APPORTION_CHECK(!clients_[i].has.contains(id) && !dead_hold_[i].contains(id));
  check_loosening(id);
  if (fails) return feed(events::UnmakeFailed{id, "cuMemFree failed", {now}});
  APPORTION_CHECK(slabs_.erase(id) == 1);
  note_loosened(id);
  feed(events::ChunkUnmade{id, {now}});
}

// What it had is lost, what it may just have made too, and the broker's chunks that it was overwriting.
void World::helper_dies() {
  std::set<ChunkId> lost = std::exchange(slabs_, {});
  std::optional<actions::ScrubChunks> failed;
  if (!helper_.empty()) {
    if (const auto* make = std::get_if<actions::MakeSlab>(&helper_.front())) {
      size_[make->id] = make->bytes;
      lost.insert(make->id);
    }
    if (auto* one = std::get_if<actions::ScrubChunks>(&helper_.front())) {
      failed = *one;
      std::erase_if(failed->chunks, [](const auto& piece) { return piece.slab; });
      std::erase_if(one->chunks, [](const auto& piece) { return !piece.slab; });
    }
  }
  const auto about_lost = [&](Action& action) {
    if (auto* one = std::get_if<actions::ScrubChunks>(&action)) {
      std::erase_if(one->chunks, [&](const auto& piece) { return lost.contains(piece.id); });
      return one->chunks.empty();
    }
    const auto* make = std::get_if<actions::MakeSlab>(&action);
    return lost.contains(make != nullptr ? make->id : std::get<actions::FreeSlab>(action).id);
  };
  std::deque<Action> left;
  for (Action& action : helper_)
    if (!about_lost(action)) left.push_back(std::move(action));
  helper_ = std::move(left);
  for (const ChunkId id : lost) {  // sooner or later
    truth_[id].died = true;
    note_loosened(id);
  }
  if (!lost.empty()) feed(events::SlabsLost{{lost.begin(), lost.end()}, "signal 9", {now}});
  if (failed && !failed->chunks.empty()) scrub(*failed, How::lost);
}

// Nobody's bytes become loose, but those of the dead and those that need no care.
void World::check_loosening(ChunkId id) {
  const Truth& truth = truth_[id];
  APPORTION_CHECK(truth.bytes != Truth::Bytes::owners || truth.died ||
                  rule(truth.owner).scrub == Scrub::never);
}

void World::note_loosened(ChunkId id) {
  if (truth_[id].bytes == Truth::Bytes::owners) loosened_.insert(truth_[id].owner);
}

// The device names the helper for its context and the slabs it has, and processes that are dead as long as it
// has not let go of what they had.
void World::read_device() {
  now += 1'000'000'000;  // well past what a reading may lag behind
  events::DeviceRoom room{kTestDevice - physical() - kContext, kTestDevice, Bytes{}, {now}};
  room.helper = room.names_all = true;
  room.helper_bytes = kContext;
  for (const ChunkId id : slabs_)
    room.helper_bytes += size_.at(id);
  room.clients = room.helper_bytes;
  room.foreign = room.helper_bytes;
  for (const Client& client : clients_)
    if (client.session) room.pids.push_back(client.pid);
  for (const std::set<std::int32_t>& dead : dead_pids_)
    room.pids.insert(room.pids.end(), dead.begin(), dead.end());
  feed(room);
}

}  // namespace apportion::testing
