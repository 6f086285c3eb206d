// What can happen next in a world, and the shorthands of tests that tell a story.
#include <iterator>

#include "tests/unit/broker/world.hpp"

namespace apportion::testing {

std::vector<Step> World::steps(const std::vector<std::uint64_t>& sizes, bool failures) const {
  using Kind = Step::Kind;
  std::vector<Step> out;
  for (std::size_t i = 0; i < clients_.size(); ++i) {
    const Client& client = clients_[i];
    if (!dead_hold_[i].empty()) out.push_back({Kind::memory_back, i});
    if (!client.lost.empty()) out.push_back({Kind::close_lost, i});
    if (!client.session) {
      out.push_back({Kind::attach, i});
      continue;
    }
    out.push_back({Kind::die, i});
    if (!client.connected) {
      out.push_back({Kind::resume, i});
      continue;
    }
    out.push_back({Kind::hang_up, i});
    out.push_back({Kind::detach, i});
    if (!client.request_pending()) {
      for (const std::uint64_t size : sizes)
        out.push_back({Kind::request, i, size, size});
      out.push_back({Kind::request, i, 1, sizes.back() + 1});
      out.push_back({Kind::request_exact, i, 3});
    }
    std::size_t in_grants = 0;
    for (const Grant& grant : client.unacked)
      in_grants += grant.ids.size();
    if (!client.unacked.empty()) {
      out.push_back({Kind::ack, i});
      out.push_back({Kind::nack, i});
      if (failures) out.push_back({Kind::unsent, i});
    }
    if (client.reclaim.value != 0 && !client.request_pending()) {  // its library answers one thing at a time
      out.push_back({Kind::give_back, i});
      out.push_back({Kind::give_back_none, i});
    }
    if (client.has.size() > in_grants) {
      out.push_back({Kind::release_one, i});
      if (client.has.size() > in_grants + 1) out.push_back({Kind::release_all, i});
    }
  }
  if (!driver_.empty()) {
    out.push_back({Kind::driver_works});
    if (failures) out.push_back({Kind::driver_fails});
  }
  if (!helper_.empty()) {
    out.push_back({Kind::helper_works});
    if (failures) out.push_back({Kind::helper_fails});
    if (failures && slabs_.empty()) out.push_back({Kind::helper_absent});
  }
  if (!dead_helpers_hold_.empty()) out.push_back({Kind::helper_memory_back});
  if (failures && (!slabs_.empty() || !helper_.empty())) out.push_back({Kind::helper_dies});
  if (!keeper_.empty()) out.push_back({Kind::keeper_works});
  if (core_->wants_tick()) {
    out.push_back({Kind::tick});
    out.push_back({Kind::read_device});
  }
  return out;
}

void World::spoil(std::uint64_t dice) {
  if (handles_.empty()) return;
  unwritable = {*std::next(handles_.begin(), static_cast<std::ptrdiff_t>(dice % handles_.size()))};
}

SessionId World::attach(std::size_t place) {
  apply({Step::Kind::attach, place});
  return clients_[place].session;
}

std::vector<ChunkId> World::take(std::size_t place, std::uint64_t chunks) {
  apply({Step::Kind::request, place, chunks, chunks});
  work();
  if (clients_[place].unacked.empty()) return {};
  const std::vector<ChunkId> ids = clients_[place].unacked.back().ids;
  apply({Step::Kind::ack, place});
  return ids;
}

}  // namespace apportion::testing
