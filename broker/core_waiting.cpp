// Requests that wait (docs/quotas.md, rule 1): above the limit of their job, but not above what the job's own
// sessions may hold unused (F56) or have on its way back.
//
// The sessions that hold most are asked first, only for what is missing, and all that are needed at once. One
// that gives less than it was asked for has no more; one that is silent past its deadline is not asked again
// until it is heard of. A request is refused when nothing that could meet it is left, or its wait is over.
//
// Never: asks another job, or the session that waits (its arena has looked); trusts a client's word for what
// it gave back: its leases say.
#include <algorithm>

#include "broker/core_state.hpp"

namespace apportion {

std::vector<Bytes> Core::State::waiting() const {
  std::vector<Bytes> by_job(jobs.size());
  for (const Waiter& waiter : waiters)
    by_job[book.find(waiter.wish.session)->job.value] += waiter.wish.bytes();
  return by_job;
}

bool Core::State::waits(SessionId session) const {
  return std::any_of(waiters.begin(), waiters.end(),
                     [&](const Waiter& waiter) { return waiter.wish.session == session; });
}

// The sessions that may have something for this waiter. Not those that waited before it: in its library's one
// exchange with the broker, a session answers nothing else, and two would wait for each other. Of two, the
// later is refused, then it can answer for the earlier.
std::vector<const BookedSession*> Core::State::givers(const Waiter& waiter) const {
  using Gave = Waiter::Asked::Gave;
  const JobIndex job = book.find(waiter.wish.session)->job;
  std::vector<SessionId> not_these = overdue;
  for (const Waiter& earlier : waiters) {
    if (earlier.wish.session == waiter.wish.session) break;
    not_these.push_back(earlier.wish.session);
  }
  for (const Waiter::Asked& asked : waiter.asked) {
    if (asked.gave == Gave::less || asked.gave == Gave::nothing_in_time) not_these.push_back(asked.session);
  }
  not_these.push_back(waiter.wish.session);
  std::vector<const BookedSession*> found;
  for (const BookedSession& session : book.session_slots()) {
    if (session.state == SessionPhase::attached && session.job == job &&
        session.tally.in(ChunkState::held).value != 0 &&
        std::find(not_these.begin(), not_these.end(), session.id) == not_these.end()) {
      found.push_back(&session);
    }
  }
  std::stable_sort(found.begin(), found.end(), [](const BookedSession* a, const BookedSession* b) {
    return a->tally.in(ChunkState::held) > b->tally.in(ChunkState::held);
  });
  return found;
}

// What must come back to the job before the wish fits.
Bytes Core::State::shortfall(const Wish& wish, Bytes ahead) const {
  const JobIndex job = book.find(wish.session)->job;
  const Bytes wanted = book.job(job).account.charged() + stock.promised(job) + ahead + wish.bytes();
  return saturating_sub(wanted, setup.jobs[job.value].limit);
}

// What is being overwritten for a grant is on its way to the job, not back from it.
Bytes Core::State::on_its_way_back(JobIndex job) const {
  const Tally& tally = book.job(job).tally;
  return tally.in(ChunkState::returning) + tally.in(ChunkState::unmaking) + tally.in(ChunkState::zombie) +
         (tally.in(ChunkState::scrub)-stock.scrubbing_for(job));
}

Bytes Core::State::being_reclaimed(JobIndex job) const {
  Bytes sum;
  for (const Reclaiming& asked : reclaiming) {
    if (asked.job == job) sum += asked.bytes;
  }
  return sum;
}

// Whether it could be met if those before it were not. A session that hung up may come back or be gone: its
// end is seen after its socket's (F01), and the wait ends in any case.
bool Core::State::worth_waiting(const Waiter& waiter) const {
  const JobIndex job = book.find(waiter.wish.session)->job;
  if (setup.jobs[job.value].wait_ns == 0 || waiter.expired) return false;
  Bytes possible = on_its_way_back(job) + book.job(job).tally.in(ChunkState::orphan);
  for (const BookedSession* giver : givers(waiter))
    possible += giver->tally.in(ChunkState::held);
  return possible >= shortfall(waiter.wish, {});
}

void Core::State::ask_back(Waiter& waiter, Bytes ahead, Actions& out) {
  const JobIndex job = book.find(waiter.wish.session)->job;
  Bytes missing = saturating_sub(shortfall(waiter.wish, ahead), on_its_way_back(job) + being_reclaimed(job));
  for (const BookedSession* giver : givers(waiter)) {
    if (missing.value == 0) return;
    if (std::any_of(reclaiming.begin(), reclaiming.end(),
                    [&](const Reclaiming& asked) { return asked.session == giver->id; })) {
      continue;  // its answer decides
    }
    const Bytes bytes = std::min(round_up(missing, setup.chunk), giver->tally.in(ChunkState::held));
    reclaiming.push_back({{++last_reclaim}, giver->id, job, bytes, {}});
    waiter.asked.push_back({giver->id, giver->pid, bytes});
    book.job(job).changed = true;
    const auto deadline_ms = static_cast<std::uint64_t>(setup.reclaim_deadline_ns / 1'000'000);
    out.emplace_back(actions::SendReclaim{giver->id, {last_reclaim}, bytes, deadline_ms});
    missing = saturating_sub(missing, bytes);
  }
}

void Core::State::serve_waiters(Actions& out) {
  std::vector<Bytes> ahead(jobs.size());
  for (std::size_t i = 0; i < waiters.size();) {
    const JobIndex job = book.find(waiters[i].wish.session)->job;
    const Served served = serve(waiters[i], ahead[job.value], out);
    if (served == Served::waits) {
      ahead[job.value] += waiters[i].wish.bytes();
      ++i;
    } else {
      waiters.erase(waiters.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
}

Core::State::Served Core::State::serve(Waiter& waiter, Bytes ahead, Actions& out) {
  const Admission now = admission(waiter.wish, ahead, false);
  if (const std::uint64_t granted = pieces_of(waiter.wish, now); granted != 0) {
    order(waiter.wish, granted);
    return Served::yes;
  }
  if (now.rule == Refusal::Rule::limit && worth_waiting(waiter)) {
    ask_back(waiter, ahead, out);
    return Served::waits;
  }
  // What came back may be on its way to F still: being unmade, or made anew.
  if (!waiter.expired && may_come(waiter.wish, ahead)) return Served::waits;
  const BookedSession& session = *book.find(waiter.wish.session);
  refuse(session, waiter.wish.request,
         refusal(session, waiter.wish.asked, now.rule, now.headroom, asked_back_text(waiter)), out);
  return Served::refused;
}

std::string Core::State::asked_back_text(const Waiter& waiter) {
  using Gave = Waiter::Asked::Gave;
  const auto outcome = [](Gave gave) {
    switch (gave) {
      case Gave::pending:
        return ", no answer yet";
      case Gave::in_full:
        return ", got it";
      case Gave::less:
        return ", it had no more";
      case Gave::nothing_in_time:
        return ", no answer in time";
    }
    return "";
  };
  std::string text = waiter.expired ? "its wait is over" : "";
  for (const Waiter::Asked& asked : waiter.asked) {
    text += (text.empty() ? "" : "; ") + ("asked back " + to_text(asked.bytes) + " of pid ") +
            std::to_string(asked.pid) + outcome(asked.gave);
  }
  return text;
}

void Core::State::on(const events::Reclaimed& event, Actions& /*out*/) {
  std::erase(overdue, event.session);
  const bool late = std::none_of(reclaiming.begin(), reclaiming.end(), [&](const Reclaiming& asked) {
    return asked.session == event.session && asked.id == event.reclaim;
  });
  if (!late) end_reclaim(event.session, true);
}

void Core::State::end_reclaim(SessionId session, bool answered) {
  using Gave = Waiter::Asked::Gave;
  const auto ended = std::find_if(reclaiming.begin(), reclaiming.end(),
                                  [&](const Reclaiming& asked) { return asked.session == session; });
  if (ended == reclaiming.end()) return;
  const Reclaiming reclaim = *ended;
  reclaiming.erase(ended);
  book.job(reclaim.job).changed = true;
  if (!answered) overdue.push_back(session);
  const Gave gave = reclaim.bytes.value == 0 ? Gave::in_full : answered ? Gave::less : Gave::nothing_in_time;
  for (Waiter& waiter : waiters) {
    if (book.find(waiter.wish.session)->job != reclaim.job) continue;
    const auto asked = std::find_if(waiter.asked.rbegin(), waiter.asked.rend(),
                                    [&](const Waiter::Asked& one) { return one.session == session; });
    if (asked != waiter.asked.rend()) {
      asked->gave = gave;
    } else if (gave != Gave::in_full) {  // asked for an earlier one, it has no more for this one either
      waiter.asked.push_back({session, book.find(session)->pid, reclaim.bytes, gave});
    }
  }
}

void Core::State::forget_waiting(SessionId session) {
  std::erase_if(waiters, [&](const Waiter& waiter) { return waiter.wish.session == session; });
  end_reclaim(session, true);
  std::erase(overdue, session);
}

void Core::State::pass_time(SteadyNs now) {
  for (Waiter& waiter : waiters) {
    if (waiter.until.value == 0) {
      const JobIndex job = book.find(waiter.wish.session)->job;
      waiter.until = {now.value + setup.jobs[job.value].wait_ns};
    }
    waiter.expired = now >= waiter.until;
  }
  std::vector<SessionId> missed;
  for (Reclaiming& asked : reclaiming) {
    if (asked.until.value == 0) asked.until = {now.value + setup.reclaim_deadline_ns};
    if (now >= asked.until) missed.push_back(asked.session);
  }
  for (const SessionId session : missed)
    end_reclaim(session, false);
}

}  // namespace apportion
