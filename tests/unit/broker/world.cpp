#include "tests/unit/broker/world.hpp"

#include <algorithm>
#include <cstdio>

namespace apportion::testing {

CoreSetup small_setup(std::uint64_t chunks, const std::vector<JobSpec>& jobs, Reserve reserve) {
  CoreSetup setup;
  setup.pool = kTestChunk * chunks;
  setup.chunk = kTestChunk;
  setup.granularity = {kTestChunk.value / 2};
  setup.device_total = kTestDevice;
  setup.reserve = reserve;
  setup.check_every_event = true;
  for (const JobSpec& spec : jobs) {
    JobRule rule;
    rule.name = spec.name;
    rule.guarantee = kTestChunk * spec.guarantee;
    rule.limit = kTestChunk * spec.limit;
    rule.told = spec.guarantee != 0 ? rule.guarantee : rule.limit;
    rule.told_reclaimable = rule.limit;
    rule.priority = spec.priority;
    rule.hold = spec.hold;
    rule.lend = spec.lend;
    setup.jobs.push_back(rule);
  }
  return setup;
}

std::string to_text(const Step& step) {
  static constexpr const char* kNames[] = {"attach",        "request",
                                           "request_exact", "ack",
                                           "nack",          "unsent",
                                           "release_one",   "release_all",
                                           "give_back",     "give_back_none",
                                           "detach",        "hang_up",
                                           "resume",        "die",
                                           "memory_back",   "driver_works",
                                           "driver_fails",  "helper_works",
                                           "helper_fails",  "helper_dies",
                                           "helper_absent", "helper_memory_back",
                                           "close_lost",    "keeper_works",
                                           "read_device",   "tick"};
  return std::string(kNames[static_cast<std::size_t>(step.kind)]) + "(" + std::to_string(step.place) + "," +
         std::to_string(step.min) + "," + std::to_string(step.want) + ")";
}

World::World(CoreSetup setup, std::vector<Place> places, bool watch_journal)
    : setup_(std::move(setup)),
      places_(std::move(places)),
      clients_(places_.size()),
      dead_hold_(places_.size()),
      dead_pids_(places_.size()) {
  JournalShape shape = JournalShape::for_pool(setup_.pool, setup_.chunk, setup_.granularity);
  shape.job_slots = static_cast<std::uint32_t>(std::max(std::size_t{4}, setup_.jobs.size()));
  shape.session_slots = 16;
  shape.credit_slots = 1;
  memory_.resize(shape.bytes());
  Result<Journal> journal = Journal::format(memory_, shape);
  APPORTION_CHECK(journal.ok());
  journal_ = std::make_unique<Journal>(*journal);
  core_ = std::make_unique<Core>(setup_, *journal_);
  if (watch_journal) journal_->observe(&World::at_store, this);
}

void World::start() {
  Actions actions;
  core_->start({now}, actions);
  run(actions);
  work();
}

void World::feed(const Event& event) {
  Actions actions;
  core_->handle(event, actions);
  run(actions);
  while (instant_helper && !helper_.empty())
    help(std::nullopt);
}

void World::run(const Actions& actions) {
  for (const Action& action : actions) {
    seen_.push_back(action);
    carry_out(action);
  }
}

void World::work() {
  while (!driver_.empty() || !keeper_.empty() || !helper_.empty()) {
    while (!keeper_.empty())
      apply({Step::Kind::keeper_works});
    if (!helper_.empty()) apply({helper_broken ? Step::Kind::helper_fails : Step::Kind::helper_works});
    if (!driver_.empty()) apply({device_full ? Step::Kind::driver_fails : Step::Kind::driver_works});
  }
}

std::size_t World::place_of(SessionId session) const {
  for (std::size_t i = 0; i < clients_.size(); ++i) {
    if (clients_[i].session && clients_[i].session == session) return i;
  }
  return clients_.size();
}

void World::carry_out(const Action& action) {
  if (std::holds_alternative<actions::MakeChunk>(action) ||
      std::holds_alternative<actions::UnmakeChunk>(action)) {
    driver_.push_back(action);
  } else if (std::holds_alternative<actions::ScrubChunks>(action) ||
             std::holds_alternative<actions::MakeSlab>(action) ||
             std::holds_alternative<actions::FreeSlab>(action)) {
    helper_.push_back(action);
  } else if (const auto* lost = std::get_if<actions::SlabsLost>(&action)) {
    const std::size_t place = place_of(lost->session);
    APPORTION_CHECK(place < clients_.size());
    for (const ChunkId id : lost->ids)
      if (clients_[place].has.erase(id) == 1) clients_[place].lost.insert(id);
  } else if (std::holds_alternative<actions::KeeperPut>(action) ||
             std::holds_alternative<actions::KeeperDel>(action)) {
    keeper_.push_back(action);
  } else if (const auto* welcome = std::get_if<actions::Welcome>(&action)) {
    Client& client = clients_[welcome->connection.value];
    client.session = welcome->session;
    client.token = welcome->token;
    client.connected = true;
  } else if (const auto* grant = std::get_if<actions::SendGrant>(&action)) {
    hand_over(*grant);
  } else if (const auto* reclaim = std::get_if<actions::SendReclaim>(&action)) {
    const std::size_t place = place_of(reclaim->session);
    APPORTION_CHECK(place < clients_.size() && clients_[place].connected);
    clients_[place].reclaim = reclaim->bytes;
    clients_[place].reclaim_id = reclaim->reclaim;
  } else if (const auto* refusal = std::get_if<actions::SendRefusal>(&action)) {
    refusals_.push_back(refusal->refusal);
    // Of a grant that could not be sent, perhaps: a later request may wait still.
    if (const std::size_t place = place_of(refusal->session);
        place < clients_.size() && clients_[place].pending == refusal->request) {
      clients_[place].pending = {};
    }
  }
}

void World::hand_over(const actions::SendGrant& grant) {
  const std::size_t place = place_of(grant.session);
  APPORTION_CHECK(place < clients_.size() && clients_[place].connected);
  Client& client = clients_[place];
  for (const ChunkId id : grant.ids) {
    // A chunk that is leased exists, is kept by the keeper, and nobody else has it. A slab is the helper's.
    APPORTION_CHECK(core_->book().find(id)->slab == grant.slabs);
    if (!grant.slabs) APPORTION_CHECK(handles_.contains(id) && kept_.contains(id));
    // One whose helper has died by now is not in the page any more: its client hears that next.
    if (grant.slabs) APPORTION_CHECK(slabs_.contains(id));
    for (const Client& other : clients_)
      APPORTION_CHECK(!other.has.contains(id));
    for (const std::set<ChunkId>& dead : dead_hold_)
      APPORTION_CHECK(!dead.contains(id));
    APPORTION_CHECK(!dead_helpers_hold_.contains(id));  // F52: its work may still come
    const Owner owner{job_of(place), places_[place].uid};
    check_passing_on(id, owner);
    Truth& truth = truth_[id];
    before_grant_[id] = truth;
    truth.bytes = Truth::Bytes::owners;
    truth.owner = owner;
    if (rule(owner).on_return != ReturnRule::trusted) truth.fds.insert(owner.uid);
    truth.strict = truth.strict || rule(owner).on_return == ReturnRule::strict;
    client.has.insert(id);
  }
  client.unacked.push_back({grant.request, grant.ids});
  if (client.pending == grant.request) client.pending = {};
}

JobIndex World::job_of(std::size_t place) const {
  return *core_->job_index(places_[place].job);
}
Bytes World::used(std::size_t place) const {
  return {core_->job_page(job_of(place)).charged};
}

bool World::any_request_pending() const {
  return std::any_of(clients_.begin(), clients_.end(),
                     [](const Client& client) { return client.request_pending(); });
}

Bytes World::physical() const {
  std::set<ChunkId> held = handles_;
  held.insert(slabs_.begin(), slabs_.end());
  for (const Client& client : clients_) {
    held.insert(client.has.begin(), client.has.end());
    held.insert(client.lost.begin(), client.lost.end());
  }
  for (const std::set<ChunkId>& dead : dead_hold_)
    held.insert(dead.begin(), dead.end());
  held.insert(dead_helpers_hold_.begin(), dead_helpers_hold_.end());
  Bytes sum{};
  for (const ChunkId id : held)
    sum += size_.at(id);
  return sum;
}

void World::apply(const Step& step) {
  using Kind = Step::Kind;
  Client& client = clients_[step.place];
  const SessionId session = client.session;
  now += 1'000'000;
  switch (step.kind) {
    case Kind::attach: {
      client = Client{};
      client.pid = next_pid_++;
      events::SessionWanted wanted;
      wanted.connection = {step.place};
      wanted.job = places_[step.place].job;
      wanted.peer = {places_[step.place].uid, {}, client.pid, 7, PidNamespace::same};
      wanted.reclaimable = places_[step.place].reclaimable;
      wanted.fresh.bytes[0] = next_token_++;
      wanted.fresh.bytes[15] = 1;
      feed(wanted);
      break;
    }
    case Kind::request:
      client.pending = {next_request_++};
      feed(events::Request{session, client.pending, kTestChunk * step.min, kTestChunk * step.want, false,
                           false});
      break;
    case Kind::request_exact:
      client.pending = {next_request_++};
      feed(events::Request{session, client.pending, setup_.granularity * step.min,
                           setup_.granularity * step.min, true, false});
      break;
    case Kind::ack: {
      const Grant grant = client.unacked.front();
      client.unacked.pop_front();
      feed(events::Acked{session, grant.request, grant.ids});
      break;
    }
    case Kind::nack: {
      const Grant grant = client.unacked.front();
      client.unacked.pop_front();
      for (const ChunkId id : grant.ids)
        client.has.erase(id);
      feed(events::Nacked{session, grant.request, {}});
      break;
    }
    case Kind::unsent: {
      const Grant grant = client.unacked.back();
      client.unacked.pop_back();
      for (const ChunkId id : grant.ids) {
        client.has.erase(id);
        truth_[id] = before_grant_[id];  // nobody has seen it
      }
      feed(events::GrantUnsent{session, grant.request, grant.ids, "export failed"});
      break;
    }
    case Kind::release_one:
    case Kind::release_all: {
      std::vector<ChunkId> ids(client.has.begin(), client.has.end());
      for (const Grant& grant : client.unacked) {
        for (const ChunkId id : grant.ids)
          std::erase(ids, id);
      }
      if (step.kind == Kind::release_one) ids.resize(1);
      for (const ChunkId id : ids)
        client.has.erase(id);
      feed(events::Released{session, {next_request_++}, ids});
      break;
    }
    case Kind::give_back: {
      std::vector<ChunkId> ids;
      Bytes given;
      for (const ChunkId id : client.has) {
        const bool unacked = std::any_of(client.unacked.begin(), client.unacked.end(), [&](const Grant& one) {
          return std::find(one.ids.begin(), one.ids.end(), id) != one.ids.end();
        });
        if (unacked || given >= client.reclaim) continue;
        ids.push_back(id);
        given += size_.at(id);
      }
      for (const ChunkId id : ids)
        client.has.erase(id);
      if (!ids.empty()) feed(events::Released{session, {next_request_++}, ids});
    }
      [[fallthrough]];
    case Kind::give_back_none:
      client.reclaim = {};
      client.late = false;
      feed(events::Reclaimed{session, client.reclaim_id});
      break;
    case Kind::detach:
      client = Client{};
      feed(events::Detached{session});
      break;
    case Kind::hang_up:
      client.connected = false;
      client.pending = {};
      client.reclaim = {};
      feed(events::HungUp{session});
      break;
    case Kind::resume: {
      // It drained its old socket: it knows all that it has.
      events::SessionWanted wanted;
      wanted.connection = {step.place};
      wanted.job = places_[step.place].job;
      wanted.peer = {places_[step.place].uid, {}, client.pid, 7, PidNamespace::same};
      wanted.resume = client.token;
      wanted.claimed.assign(client.has.begin(), client.has.end());
      wanted.claimed.insert(wanted.claimed.end(), client.lost.begin(), client.lost.end());  // F52: while away
      client.unacked.clear();
      feed(wanted);
      break;
    }
    case Kind::die:
      dead_hold_[step.place].insert(client.has.begin(), client.has.end());
      for (const ChunkId id : client.has)
        truth_[id].died = true;
      dead_hold_[step.place].insert(client.lost.begin(), client.lost.end());
      if (!dead_hold_[step.place].empty()) dead_pids_[step.place].insert(client.pid);
      client = Client{};
      feed(events::ProcessGone{session, {now}});
      break;
    case Kind::memory_back:
      dead_hold_[step.place].clear();
      dead_pids_[step.place].clear();
      break;
    case Kind::driver_works:
    case Kind::driver_fails: {
      const Action action = driver_.front();
      driver_.pop_front();
      const bool works = step.kind == Kind::driver_works;
      if (const auto* make = std::get_if<actions::MakeChunk>(&action)) {
        if (works) {
          APPORTION_CHECK(!size_.contains(make->id));  // an id is never used twice
          size_[make->id] = make->bytes;
          handles_.insert(make->id);
          feed(events::ChunkMade{make->id, {now}});
        } else {
          feed(events::MakeFailed{make->id, true, "out of memory", {now}});
        }
      } else {
        const ChunkId id = std::get<actions::UnmakeChunk>(action).id;
        APPORTION_CHECK(!kept_.contains(id));  // the keeper's fd goes first
        check_loosening(id);
        if (works) {
          note_loosened(id);
          handles_.erase(id);
          feed(events::ChunkUnmade{id, {now}});
        } else {
          feed(events::UnmakeFailed{id, "device error", {now}});
        }
      }
      break;
    }
    case Kind::helper_works:
    case Kind::helper_fails:
      help(step.kind == Kind::helper_works ? std::nullopt : std::optional(How::refused));
      break;
    case Kind::helper_absent:
      help(How::untried);
      break;
    case Kind::helper_dies:
      helper_dies();
      break;
    case Kind::helper_memory_back:
      dead_helpers_hold_.clear();
      break;
    case Kind::close_lost:
      client.lost.clear();
      break;
    case Kind::keeper_works: {
      const Action action = keeper_.front();
      keeper_.pop_front();
      if (const auto* put = std::get_if<actions::KeeperPut>(&action)) {
        kept_.insert(put->ids.begin(), put->ids.end());
        feed(events::KeeperAcked{events::KeeperAcked::What::put, put->ids});
      } else {
        const auto& del = std::get<actions::KeeperDel>(action);
        for (const ChunkId id : del.ids)
          kept_.erase(id);
        feed(events::KeeperAcked{events::KeeperAcked::What::del, del.ids});
      }
      break;
    }
    case Kind::read_device:
      read_device();
      break;
    case Kind::tick:
      now += 10'000'000'000;
      for (Client& one : clients_)
        one.late = one.late || one.reclaim.value != 0;
      feed(events::Tick{{now}});
      break;
  }
  if (checking) check();
}

}  // namespace apportion::testing
