#include "broker/shell.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <unordered_set>

#include "broker/book.hpp"
#include "broker/helper.hpp"
#include "broker/log.hpp"
#include "shm/fault_point.hpp"

namespace apportion {
namespace {

// While the device's word is awaited: soon at first, and then at leisure (a forked child may hold memory for
// days).
constexpr std::chrono::milliseconds kFirstTick{50};
constexpr std::chrono::milliseconds kLongestTick{250};

SteadyNs now() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return {std::chrono::duration_cast<std::chrono::nanoseconds>(since).count()};
}

// Calls `each` with at most `size` ids at a time.
template <typename Each>
void in_slices(const std::vector<ChunkId>& ids, std::size_t size, Each&& each) {
  for (std::size_t first = 0; first < ids.size(); first += size) {
    const std::size_t count = std::min(size, ids.size() - first);
    each(std::vector<ChunkId>(ids.begin() + static_cast<std::ptrdiff_t>(first),
                              ids.begin() + static_cast<std::ptrdiff_t>(first + count)));
  }
}

// F30: what the limit of open files leaves when every chunk's descriptor is on its way to a client at once.
std::size_t most_connections(const LoadReport& load) {
  // The loop, pages, libraries, one message's worth to the keeper and one to the helper.
  constexpr std::size_t kOthers = 192 + HelperLink::kMostChunks;
  constexpr std::size_t kLeast = 8;
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const std::size_t needed = load.pool_chunks + kOthers;
  return limit.rlim_cur < needed ? kLeast : std::max(kLeast, (limit.rlim_cur - needed) / Server::kFdsEach);
}

std::vector<std::string> names_of(const std::vector<JobRule>& jobs) {
  std::vector<std::string> names;
  for (const JobRule& job : jobs)
    names.push_back(job.name);
  return names;
}

// As many as there can be leases at all, so that a page is never full.
std::vector<std::uint32_t> slab_places(const std::vector<JobRule>& jobs, std::uint32_t most) {
  std::vector<std::uint32_t> places;
  for (const JobRule& job : jobs)
    places.push_back(job.transport == Transport::ipc ? most : 0);
  return places;
}

}  // namespace

Shell::Shell(Loop& loop, ShellParts parts, const Device& device, const DeviceMonitor& monitor,
             Journal& journal, KeeperLink& keeper, int listening_socket)
    : loop_(loop),
      parts_(std::move(parts)),
      journal_(journal),
      keeper_(keeper),
      core_(parts_.setup, journal),
      server_(loop, listening_socket, {most_connections(parts_.load), journal.shape().chunk_slots}, *this),
      pool_(device, monitor, [this](std::function<void()> job) { loop_.post(std::move(job)); }),
      helper_(
          loop, {"apportiond", kHelperDeviceFlag, parts_.helper_device},
          [this](std::vector<ChunkId> ids, HelperLink::Fds fds) {
            pool_.export_fds(std::move(ids), std::move(fds));
          },
          helper_answers(), parts_.helper),
      started_ns_(now().value) {}

Shell::~Shell() = default;

Status Shell::open() {
  PublisherSetup setup{
      parts_.setup.epoch,          parts_.facts.device_uuid,
      parts_.facts.device_name,    parts_.load.device.total,
      names_of(parts_.setup.jobs), slab_places(parts_.setup.jobs, journal_.shape().chunk_slots)};
  auto publisher = Publisher::create(loop_, std::move(setup), [this] { return core_.ledger(); });
  if (!publisher.ok()) return publisher.error();
  publisher_ = *std::move(publisher);
  for (std::uint32_t job = 0; job < core_.job_count(); ++job)
    publisher_->publish_job({job}, core_.job_page({job}));
  publisher_->ledger_changed();
  return Done{};
}

int Shell::run() {
  loop_.on_signals({SIGTERM, SIGINT, SIGHUP}, [this](int signal) {
    if (signal == SIGHUP)
      return log::warning("config", {{"warning", "reloading comes with a later version: nothing has changed"},
                                     {"remedy", "restart apportiond when its jobs are done"}});
    log::info("stopping", {{"signal", std::to_string(signal)}});
    loop_.stop();
  });
  // At rest the keeper's pings are all that wakes the broker; each brings a reading of the device, the
  // baseline that deaths are measured against (graveyard.hpp).
  Status watched =
      keeper_.watch([this](const std::string& why) { keeper_lost(why); }, [this] { read_room(); });
  if (!watched.ok()) {
    fatal(watched.error());
    return exit_code_;
  }
  watch_predecessors();
  Actions actions;
  core_.start(now(), actions);
  perform(actions);
  work_off();
  loop_.run();
  return exit_code_;
}

// The sessions of an earlier broker that a closed one goes on naming: no connection tells of their end.
void Shell::watch_predecessors() {
  std::vector<BookedSession> adopted = core_.book().session_slots();
  for (const BookedSession& session : adopted)
    if (session.state == SessionPhase::orphan) server_.watch(session.id, session.pid, session.start_time);
}

// F51. A new keeper, started by the living broker, comes with crash recovery; until then the broker serves
// on, and only its own crash would cost memory. Before it was ready nobody depends on it.
void Shell::keeper_lost(const std::string& why) {
  if (!core_.ready()) return fatal({Errc::disconnected, "the keeper is gone (" + why + ")"});
  parts_.facts.keeper_pid = 0;
  log::error("lost",
             {{"what", "keeper"},
              {"why", why},
              {"remedy", "when its jobs are done, stop apportiond (kill -TERM " + std::to_string(getpid()) +
                             ") and start it again: until then a crash of the broker loses what it knows"}});
}

// Events that come up while actions are carried out wait their turn: the core sees one at a time.
void Shell::event(const Event& event) {
  if (!std::holds_alternative<events::Tick>(event) && !std::holds_alternative<events::DeviceRoom>(event))
    hurry_ = true;
  events_.push_back(event);
  if (!handling_) work_off();
}

void Shell::perform(const Actions& actions) {
  handling_ = true;
  for (const Action& action : actions)
    carry_out(action);
  handling_ = false;
}

void Shell::work_off() {
  while (!events_.empty()) {
    const Event next = std::move(events_.front());
    events_.pop_front();
    Actions actions;
    core_.handle(next, actions);
    APPORTION_FAULT_POINT("core.after_handle");
    perform(actions);
  }
  keep_ticking();
}

void Shell::keep_ticking() {
  const bool hurry = std::exchange(hurry_, false) || tick_delay_.count() == 0;
  if (!core_.wants_tick()) return tick_.reset();
  if (tick_ && (!hurry || tick_delay_ == kFirstTick)) return;
  tick_delay_ = hurry ? kFirstTick : std::min(tick_delay_ * 2, kLongestTick);
  tick_ = loop_.after(tick_delay_, [this] {
    tick_.reset();
    event(events::Tick{now()});
  });
}

// --- status, and the readings of the device

void Shell::status_wanted(ConnectionId from, const wire::StatusRequest& request) {
  askers_.push_back({from, request});
  if (askers_.size() == 1) answer_askers();
}

// One reading answers all who had asked before it began: many readers cost no more than one.
void Shell::answer_askers() {
  pool_.read_room(Pool::Labels::yes, [this, count = askers_.size()](const Pool::Room& room) {
    room_read(room);
    StatusFacts facts = parts_.facts;
    facts.note = core_.closed();
    facts.uptime_ms = static_cast<std::uint64_t>((now().value - started_ns_) / 1'000'000);
    const LedgerSnapshot snapshot = publisher_->snapshot();
    const PoolFigures pool = core_.pool();
    const std::vector<wire::HolderRow> holders =
        holder_rows(snapshot, room, pool.pool - pool.loose, helper_.pid(), core_.book().slabs());
    std::vector<JobCounters> counters;
    for (std::uint32_t job = 0; job < core_.job_count(); ++job)
      counters.push_back(core_.counters({job}));
    const std::vector<Asker> answered(askers_.begin(), askers_.begin() + static_cast<std::ptrdiff_t>(count));
    askers_.erase(askers_.begin(), askers_.begin() + static_cast<std::ptrdiff_t>(count));
    for (const Asker& asker : answered) {
      ClientConnection* connection = server_.find(asker.from);
      if (connection == nullptr) continue;
      send_status(facts, snapshot, *publisher_, counters, holders, asker.request,
                  [connection](std::span<const std::byte> row) { connection->send(row); });
      connection->resume();
    }
    if (!askers_.empty()) answer_askers();
  });
}

void Shell::read_room() {
  if (std::exchange(reading_room_, true)) return;  // the worker is busy: the next one will do
  pool_.read_room(Pool::Labels::no, [this](const Pool::Room& room) {
    reading_room_ = false;
    room_read(room);
  });
}

void Shell::carry_out(const Action& action) {
  std::visit([this](const auto& each) { on(each); }, action);
}

void Shell::on(const actions::MakeChunk& action) {
  pool_.make(action.id, action.bytes, [this, id = action.id](const Status& made) {
    if (made.ok()) return event(events::ChunkMade{id, now()});
    event(events::MakeFailed{id, made.error().code == Errc::out_of_memory, made.error().message, now()});
  });
}

void Shell::on(const actions::UnmakeChunk& action) {
  pool_.unmake(action.id, [this, id = action.id](const Status& unmade) {
    if (unmade.ok()) return event(events::ChunkUnmade{id, now()});
    event(events::UnmakeFailed{id, unmade.error().message, now()});
  });
}

void Shell::on(const actions::KeeperPut& action) {
  in_slices(action.ids, wire::kMaxFds, [this](std::vector<ChunkId> ids) {
    pool_.export_fds(ids, [this, ids](Result<std::vector<Fd>> fds) {
      if (!fds.ok()) return unmake_unkept(ids, fds.error());
      keeper_.put(ids, *std::move(fds), [this, ids](const Status& kept) {
        if (!kept.ok()) return unmake_unkept(ids, kept.error());
        event(events::KeeperAcked{events::KeeperAcked::What::put, ids});
      });
    });
  });
}

// F33: without a copy at the keeper a chunk would die with this broker: as if it had not been made.
void Shell::unmake_unkept(const std::vector<ChunkId>& ids, const Error& why) {
  for (const ChunkId id : ids) {
    pool_.unmake(id, [this, id, why](const Status& unmade) {
      if (!unmade.ok()) return fatal(unmade.error());
      event(events::MakeFailed{id, false, why.message, now()});
    });
  }
}

void Shell::on(const actions::KeeperDel& action) {
  in_slices(action.ids, wire::kMaxFds, [this](std::vector<ChunkId> ids) {
    keeper_.del(ids, [this, ids](const Status& dropped) {
      if (!dropped.ok()) return fatal(dropped.error());
      event(events::KeeperAcked{events::KeeperAcked::What::del, ids});
    });
  });
}

void Shell::on(const actions::PublishJob& action) {
  publisher_->publish_job(action.job, action.figures);
}
void Shell::on(const actions::PublishLedger&) {
  publisher_->ledger_changed();
}

void Shell::on(const actions::AskDeviceRoom&) {
  read_room();
}

void Shell::room_read(const Pool::Room& room) {
  if (!room.memory.ok()) {
    if (!std::exchange(room_unreadable_, true))
      log::error("lost", {{"what", "reading of the device"}, {"why", room.memory.error().message}});
    return;
  }
  room_unreadable_ = false;
  std::unordered_set<pid_t> clients;
  for (const BookedSession& session : core_.book().session_slots())
    if (session.state != SessionPhase::vacant) clients.insert(session.pid);
  clients.insert(helper_.pid());  // its context is set aside by the load rule
  std::optional<Bytes> foreign;
  events::DeviceRoom reading{room.memory->free, room.memory->total, {}, {room.read_at_ns}};
  for (const DeviceProcess& process : room.processes) {
    reading.pids.push_back(process.pid);
    if (process.pid == getpid() || dead_helpers_.contains(process.pid) || !process.used) continue;
    foreign = foreign.value_or(Bytes{}) + *process.used;
    if (clients.contains(process.pid)) reading.clients += *process.used;
    if (process.pid == helper_.pid()) reading.helper_bytes += *process.used;
  }
  reading.foreign = foreign;
  reading.helper = helper_.pid() != 0;
  reading.names_all = reading.helper && std::find(reading.pids.begin(), reading.pids.end(), helper_.pid()) !=
                                            reading.pids.end();
  // A list that could not be read would make a dead helper that is still there a stranger.
  if (!reading.pids.empty())
    std::erase_if(dead_helpers_, [&](pid_t pid) {
      return std::find(reading.pids.begin(), reading.pids.end(), pid) == reading.pids.end();
    });
  event(reading);
}

void Shell::on(const actions::Ready&) {
  keeper_.ready();
  server_.start_accepting();
  log::info("ready", {{"device", parts_.facts.device_uuid},
                      {"simulated", parts_.facts.simulated ? "yes" : "no"},
                      {"pool", to_text(parts_.load.pool)},
                      {"chunks", std::to_string(parts_.load.pool_chunks)},
                      {"jobs", std::to_string(core_.job_count())},
                      {"epoch", std::to_string(parts_.setup.epoch)},
                      {"socket", parts_.facts.socket}});
}

// The pool cannot be made: whoever has the device is the first thing to know.
void Shell::on(const actions::Fatal& action) {
  pool_.read_room(Pool::Labels::yes, [this, error = action.error](const Pool::Room& room) {
    fatal({error.code, error.message + others_on(room)});
  });
}

void Shell::fatal(const Error& error) {
  // Before it was ready somebody waits at the terminal, and the log may be off.
  if (core_.ready()) {
    log::error("fatal", {{"code", to_text(error.code)}, {"why", error.message}});
  } else if (exit_code_ == 0) {
    std::fprintf(stderr, "apportiond: %s\n", error.message.c_str());
  }
  exit_code_ = 1;
  loop_.stop();
}

void Shell::on(const actions::Log& action) {
  const auto level = static_cast<log::Level>(action.level);
  log::write(level, action.event, action.fields);
}

}  // namespace apportion
