#include <algorithm>

#include "broker/core_state.hpp"
#include "config/user_rule.hpp"

namespace apportion {

namespace {

std::string list_of_jobs(const CoreSetup& setup) {
  std::string names;
  for (const JobRule& job : setup.jobs)
    names += (names.empty() ? "" : ", ") + job.name;
  return names.empty() ? "none" : names;
}

}  // namespace

actions::Log lost_client(const BookedSession& session, const std::string& job, Bytes bytes) {
  return log_line(actions::Log::Level::info, "lost",
                  {{"what", "client"},
                   {"job", job},
                   {"pid", std::to_string(session.pid)},
                   {"uid", std::to_string(session.uid)},
                   {"bytes", std::to_string(bytes.value)}});
}

const BookedSession* Core::State::live(SessionId id) const {
  const BookedSession* session = book.find(id);
  return session != nullptr && session->state != SessionPhase::ended ? session : nullptr;
}

Result<JobIndex> Core::State::job_for(const events::SessionWanted& event) const {
  const std::string name = event.job.empty() ? "default" : event.job;
  const auto rule =
      std::find_if(setup.jobs.begin(), setup.jobs.end(), [&](const JobRule& r) { return r.name == name; });
  if (rule == setup.jobs.end()) {
    const std::string what = event.job.empty() ? "no job named, and the config has no [jobs.default]"
                                               : "no job \"" + name + "\" in the config";
    return Error{Errc::not_found, what + "; its jobs: " + list_of_jobs(setup)};
  }
  if (!may_join(rule->users, event.peer.uid, event.peer.gids)) {
    return Error{Errc::denied, "uid " + std::to_string(event.peer.uid) + " may not join job \"" + name +
                                   "\": its `users` name others"};
  }
  if (rule->transport == Transport::ipc)
    if (Status can = may_open_slabs(*rule, event); !can.ok()) return can.error();
  const auto of_uid = static_cast<std::uint32_t>(std::count_if(
      book.session_slots().begin(), book.session_slots().end(), [&](const BookedSession& session) {
        return session.uid == event.peer.uid &&
               (session.state == SessionPhase::attached || session.state == SessionPhase::orphan);
      }));
  if (of_uid >= setup.sessions_per_uid) {
    return Error{Errc::busy, "uid " + std::to_string(event.peer.uid) + " has " + std::to_string(of_uid) +
                                 " sessions already (sessions_per_uid); end some first"};
  }
  return JobIndex{static_cast<std::uint32_t>(rule - setup.jobs.begin())};
}

Bytes Core::State::told_total(const BookedSession& session) const {
  const JobRule& rule = setup.jobs[session.job.value];
  return session.reclaimable ? rule.told_reclaimable : rule.told;
}

void Core::State::welcome(ConnectionId connection, SessionId id, bool resumed, Actions& out) const {
  const BookedSession& session = *book.find(id);
  const Bytes told = told_total(session);
  out.emplace_back(actions::Welcome{connection, id, session.token, session.job, setup.epoch, resumed,
                                    setup.chunk, told,
                                    saturating_sub(told, book.job(session.job).account.charged())});
}

void Core::State::on(const events::SessionWanted& event, Actions& out) {
  if (event.resume) return resume(event, out);
  const Result<JobIndex> job = job_for(event);
  if (!job.ok()) {
    out.emplace_back(actions::RefuseHello{event.connection, job.error()});
    return;
  }
  JournalSession fields;
  fields.token = event.fresh;
  fields.uid = event.peer.uid;
  fields.pid = event.peer.pid;
  fields.start_time = event.peer.start_time;
  fields.reclaimable = event.reclaimable;
  const std::optional<SessionId> id = book.open(*job, fields, event.label);
  if (!id) {
    out.emplace_back(actions::RefuseHello{
        event.connection, {Errc::busy, "all sessions of this broker are taken; end some first"}});
    return;
  }
  welcome(event.connection, *id, false, out);
}

// A client comes back after its connection broke. What it lists and the book knows is HELD again; what the
// book knows and it does not list is returned; what it lists and the book does not know is refused (F16).
void Core::State::resume(const events::SessionWanted& event, Actions& out) {
  const auto refuse_hello = [&](Errc code, std::string why) {
    out.emplace_back(actions::RefuseHello{event.connection, {code, std::move(why)}});
  };
  if (!closed.empty()) return refuse_hello(Errc::busy, closed_text());
  const auto& sessions = book.session_slots();
  const auto found = std::find_if(sessions.begin(), sessions.end(), [&](const BookedSession& session) {
    return (session.state == SessionPhase::attached || session.state == SessionPhase::orphan) &&
           session.token == *event.resume;
  });
  if (found == sessions.end()) return refuse_hello(Errc::not_found, "no session has this token; attach anew");
  const SessionId id = found->id;
  // F08, F16: the token alone is not enough; it must be that process.
  if (found->uid != event.peer.uid || found->pid != event.peer.pid ||
      found->start_time != event.peer.start_time) {
    return refuse_hello(Errc::denied, "the session of this token belongs to another process");
  }
  if (found->state == SessionPhase::attached) on(events::HungUp{id}, out);  // the new connection was faster
  book.attach_again(id);
  std::vector<ChunkId> unknown;
  for (const ChunkId chunk : event.claimed) {
    if (lent(chunk, id, ChunkState::orphan) || lent(chunk, id, ChunkState::offered)) {
      book.hold(chunk);
    } else if (!lent(chunk, id, ChunkState::held)) {
      unknown.push_back(chunk);
    }
  }
  const std::vector<std::uint32_t> slots = book.find(id)->chunks;
  for (const std::uint32_t slot : slots) {
    const ChunkId chunk = book.id_of(slot);
    if (lent(chunk, id, ChunkState::orphan)) take_back(chunk);
    if (lent(chunk, id, ChunkState::offered)) {
      book.begin_return(chunk);
      stock.discard(chunk);  // its fd may still lie in the old socket
    }
  }
  if (!unknown.empty()) {
    out.emplace_back(log_line(actions::Log::Level::warning, "refused",
                              {{"what", "leases of a re-attaching session"},
                               {"pid", std::to_string(event.peer.pid)},
                               {"unknown", std::to_string(unknown.size())}}));
  }
  welcome(event.connection, id, true, out);
  // F52: they were lost while it was away.
  if (!unknown.empty() && takes_slabs(book.find(id)->job))
    tell_lost(id, std::move(unknown), "the broker's helper that had them is gone", out);
}

void Core::State::forget_releases(SessionId id) {
  std::erase_if(answers, [&](const Answer& answer) { return answer.session == id; });
}

// A hang-up is a suspicion. Its process may live, and so may its mappings (F05): everything stays charged and
// its guarantee stays in force. What it had asked for and not got is dropped.
void Core::State::on(const events::HungUp& event, Actions& /*out*/) {
  const BookedSession* session = live(event.session);
  if (session == nullptr || session->state == SessionPhase::orphan) return;
  stock.cancel(event.session);
  forget_waiting(event.session);
  forget_releases(event.session);
  book.orphan(event.session);
}

void Core::State::on(const events::Detached& event, Actions& out) {
  if (live(event.session) == nullptr) return;
  stock.cancel(event.session);
  forget_waiting(event.session);
  forget_releases(event.session);
  Bytes bytes{};
  const std::vector<std::uint32_t> slots = book.find(event.session)->chunks;
  for (const std::uint32_t slot : slots) {
    const ChunkId id = book.id_of(slot);
    const Bytes size = book.find(id)->bytes;
    if (lent(id, event.session, ChunkState::held) || lent(id, event.session, ChunkState::orphan)) {
      take_back(id);
    } else if (lent(id, event.session, ChunkState::offered)) {
      book.begin_return(id);
      stock.discard(id);  // its fd may still lie in the socket
    } else {
      continue;  // on its way back already
    }
    bytes += size;
  }
  book.end(event.session);
  out.emplace_back(actions::EndSession{event.session, "", bytes});
}

// The process is gone. Its chunks are not: the GPU may still write to them, a forked child may hold them, and
// an fd may lie in a socket. They are retired, and charged until the device shows the room (F01, F02, F05).
void Core::State::on(const events::ProcessGone& event, Actions& out) {
  const BookedSession* session = live(event.session);
  if (session == nullptr) return;
  if (!closed.empty()) return leave_unsettled(*session, out);
  stock.cancel(event.session);
  forget_waiting(event.session);
  forget_releases(event.session);
  Bytes lost{};
  const std::vector<std::uint32_t> slots = session->chunks;
  for (const std::uint32_t slot : slots) {
    const BookedChunk& chunk = *book.find(book.id_of(slot));
    if (chunk.state != ChunkState::held && chunk.state != ChunkState::orphan &&
        chunk.state != ChunkState::offered) {
      continue;  // on its way back already
    }
    lost += chunk.bytes;
    book.bury(chunk.id);
    stock.retire(chunk.id, session->pid, event.now);
  }
  // A program that ends without a goodbye and holds nothing is nobody's concern.
  if (lost.value != 0) out.emplace_back(lost_client(*session, book.job(session->job).name, lost));
  book.end(event.session);
  out.emplace_back(actions::EndSession{event.session, "its process is gone", {}});
}

}  // namespace apportion
