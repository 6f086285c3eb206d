// The truth against the core, and what makes two worlds alike.
#include <algorithm>

#include "tests/unit/broker/world.hpp"

namespace apportion::testing {

// F39: no byte of another, and nothing of which another user's process may have kept an fd.
void World::check_passing_on(ChunkId id, Owner to) const {
  const auto known = truth_.find(id);
  const Truth truth = known == truth_.end() ? Truth{} : known->second;
  APPORTION_CHECK(!truth.strict);
  for (const std::uint32_t uid : truth.fds)
    APPORTION_CHECK(uid == to.uid);
  const Scrub wants = rule(to).scrub;
  switch (truth.bytes) {
    case Truth::Bytes::zeros:
      return;
    case Truth::Bytes::unknown:
      APPORTION_CHECK(wants == Scrub::never);
      for (const Owner& left : loosened_)
        APPORTION_CHECK(rule(left).scrub == Scrub::never);
      return;
    case Truth::Bytes::owners:
      if (truth.owner == to) return APPORTION_CHECK(wants != Scrub::always);
      return APPORTION_CHECK(wants == Scrub::never && rule(truth.owner).scrub == Scrub::never);
  }
}

void World::at_store(void* context) {
  const auto* world = static_cast<const World*>(context);
  if (world->checking) world->check_journal();
}

// A crash here: every chunk a living client has, the next broker must find as leased by that session, and
// every chunk a dead one may still hold must not be free.
void World::check_journal() const {
  const Result<JournalImage> image = read_journal(memory_);
  APPORTION_CHECK(image.ok() && image->damaged.empty());
  std::map<ChunkId, const JournalImage::Lease*> leases;
  Bytes sum{};
  for (const JournalImage::Lease& lease : image->chunks) {
    APPORTION_CHECK(!slabs_.contains(lease.id) || lease.marks.slab);
    APPORTION_CHECK(!handles_.contains(lease.id) || !lease.marks.slab);
    leases[lease.id] = &lease;
    sum += lease.bytes;
    if (lease.session_slot) APPORTION_CHECK(image->session_in(*lease.session_slot) != nullptr);
    if (lease.state != ChunkState::free) continue;
    // F38: what the next broker takes for clean, or for somebody's own, is that.
    const auto known = truth_.find(lease.id);
    const Truth truth = known == truth_.end() ? Truth{} : known->second;
    APPORTION_CHECK(!lease.marks.clean || truth.bytes == Truth::Bytes::zeros);
    APPORTION_CHECK(truth.fds.empty() || (lease.marks.bound && truth.fds.size() == 1 && lease.last_owner &&
                                          truth.fds.contains(lease.last_owner->uid)));
    if (truth.bytes != Truth::Bytes::owners) continue;
    APPORTION_CHECK(lease.last_owner && lease.last_owner->uid == truth.owner.uid);
    const JournalImage::Job* job = image->job_in(lease.last_owner->job_slot);
    APPORTION_CHECK(job != nullptr && job->name == rule(truth.owner).name);
  }
  APPORTION_CHECK(sum <= setup_.pool);
  for (const ChunkId id : dead_helpers_hold_) {
    const auto lease = leases.find(id);
    APPORTION_CHECK(lease == leases.end() || lease->second->state == ChunkState::scrub ||
                    lease->second->state == ChunkState::zombie);  // F52
  }
  for (std::size_t i = 0; i < clients_.size(); ++i) {
    for (const ChunkId id : clients_[i].has) {
      const auto lease = leases.find(id);
      APPORTION_CHECK(lease != leases.end());
      APPORTION_CHECK(lease->second->session_slot == clients_[i].session.slot());
      const JournalImage::Session* session = image->session_in(clients_[i].session.slot());
      APPORTION_CHECK(session != nullptr && session->id == clients_[i].session);
      APPORTION_CHECK(session->fields.token == clients_[i].token && session->fields.pid == clients_[i].pid);
    }
    std::set<ChunkId> still_held = dead_hold_[i];
    still_held.insert(clients_[i].lost.begin(), clients_[i].lost.end());
    for (const ChunkId id : still_held) {
      const auto lease = leases.find(id);
      if (lease != leases.end()) APPORTION_CHECK(lease->second->state != ChunkState::free);
    }
  }
}

void World::check_truth() const {
  std::vector<Bytes> has(core_->job_count());
  for (std::size_t i = 0; i < clients_.size(); ++i) {
    const Client& client = clients_[i];
    for (const ChunkId id : client.has) {
      has[job_of(i).value] += size_.at(id);
      const BookedChunk* chunk = core_->book().find(id);
      APPORTION_CHECK(chunk != nullptr && chunk->lessee == client.session && chunk->bytes == size_.at(id));
      for (std::size_t j = 0; j < i; ++j)
        APPORTION_CHECK(!clients_[j].has.contains(id));
    }
  }
  Bytes charged{};
  for (std::size_t j = 0; j < has.size(); ++j) {
    const JobFigures page = core_->job_page(JobIndex{static_cast<std::uint32_t>(j)});
    APPORTION_CHECK(has[j].value <= page.charged);  // never under-counted
    APPORTION_CHECK(page.charged <= page.limit);
    APPORTION_CHECK(page.covered <= page.in_force);
    charged += Bytes{page.charged};
  }
  const PoolFigures pool = core_->pool();
  APPORTION_CHECK(pool.pool == setup_.pool && pool.charged == charged);
  APPORTION_CHECK(pool.pool == pool.charged + pool.in_transit + pool.free);
  // The device never holds more for us than the pool: nothing was remade before its room was there.
  APPORTION_CHECK(physical() <= setup_.pool);
}

void World::check() const {
  core_->check();
  check_truth();
  check_journal();
}

std::string World::fingerprint() const {
  std::string text;
  const auto add = [&](std::uint64_t value) { text += std::to_string(value) + ","; };
  // Chunks that are alike are alike: sorted, without their names.
  std::vector<std::string> chunks;
  const auto describe = [&](ChunkId id) {
    const BookedChunk* chunk = core_->book().find(id);
    if (chunk == nullptr) return std::string("gone");
    const std::size_t place = place_of(chunk->lessee);
    std::string one = std::to_string(static_cast<int>(chunk->state)) + (chunk->sent ? "s" : "") + "/" +
                      std::to_string(chunk->bytes.value >> 20) + "/" + std::to_string(place);
    if (chunk->lessee) one += "j" + std::to_string(core_->book().find(chunk->lessee)->job.value);
    if (chunk->past.owner)
      one +=
          "o" + std::to_string(chunk->past.owner->job.value) + "u" + std::to_string(chunk->past.owner->uid);
    one += std::string(chunk->past.clean ? "c" : "") + (chunk->past.bound ? "b" : "") +
           (chunk->past.stubborn ? "t" : "");
    one += handles_.contains(id) ? "h" : slabs_.contains(id) ? "S" : chunk->slab ? "L" : "";
    one += kept_.contains(id) ? "k" : "";
    for (const std::set<ChunkId>& dead : dead_hold_)
      one += dead.contains(id) ? "d" : "-";
    return one;
  };
  for (const auto& [id, bytes] : size_) {
    if (core_->book().find(id) != nullptr) chunks.push_back(describe(id));
  }
  std::sort(chunks.begin(), chunks.end());
  for (const std::string& chunk : chunks)
    text += chunk + ";";
  for (const Client& client : clients_) {
    add(client.session ? 1 : 0);
    add(client.connected ? 1 : 0);
    add(client.request_pending() ? 1 : 0);
    add(client.reclaim.value >> 20);
    add(client.late ? 1 : 0);
    add(client.has.size());
    add(client.lost.size());
    for (const Grant& grant : client.unacked)
      add(grant.ids.size());
    text += "|";
  }
  for (std::size_t j = 0; j < core_->job_count(); ++j) {
    add(core_->job_page(JobIndex{static_cast<std::uint32_t>(j)}).covered >> 20);
    add(core_->job_page(JobIndex{static_cast<std::uint32_t>(j)}).reclaim_target >> 20);
    add(core_->book().jobs()[j].arrival);
  }
  const PoolFigures pool = core_->pool();
  add(pool.loose.value >> 20);
  add(pool.in_transit.value >> 20);
  for (const Action& action : driver_) {
    const auto* make = std::get_if<actions::MakeChunk>(&action);
    text += make != nullptr ? "m" + std::to_string(make->bytes.value >> 20)
                            : "u" + describe(std::get<actions::UnmakeChunk>(action).id);
  }
  for (const Action& action : helper_) {
    if (const auto* scrub = std::get_if<actions::ScrubChunks>(&action)) {
      text += "s";
      for (const auto& piece : scrub->chunks)
        text += describe(piece.id);
    } else if (const auto* make = std::get_if<actions::MakeSlab>(&action)) {
      text += "a" + std::to_string(make->bytes.value >> 20);
    } else {
      text += "f" + describe(std::get<actions::FreeSlab>(action).id);
    }
  }
  for (const Action& action : keeper_) {
    const auto* put = std::get_if<actions::KeeperPut>(&action);
    for (const ChunkId id : put != nullptr ? put->ids : std::get<actions::KeeperDel>(action).ids) {
      text += (put != nullptr ? "p" : "d") + describe(id);
    }
  }
  add(core_->wants_tick() ? 1 : 0);
  return text;
}

}  // namespace apportion::testing
