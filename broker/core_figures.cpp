#include <algorithm>

#include "broker/core_state.hpp"

namespace apportion {

namespace {

constexpr std::size_t kHoldersNamed = 8;

}  // namespace

const char* to_text(Refusal::Rule rule) {
  switch (rule) {
    case Refusal::Rule::malformed:
      return "malformed";
    case Refusal::Rule::limit:
      return "limit";
    case Refusal::Rule::uncovered:
      return "uncovered";
    case Refusal::Rule::burst:
      return "burst";
    case Refusal::Rule::device_full:
      return "device_full";
    case Refusal::Rule::scrub_failed:
      return "scrub_failed";
    case Refusal::Rule::helper_failed:
      return "helper_failed";
    case Refusal::Rule::send_failed:
      return "send_failed";
    case Refusal::Rule::closed:
      return "closed";
  }
  return "unknown";
}

std::vector<JobView> Core::State::views() const {
  std::vector<JobView> out(jobs.size());
  const std::vector<Bytes> wanted = waiting();
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const JobIndex index{static_cast<std::uint32_t>(i)};
    const JobRule& rule = setup.jobs[i];
    const JobBook& job = book.job(index);
    JobView& view = out[i];
    view.guarantee = rule.guarantee;
    view.limit = rule.limit;
    view.in_force = in_force(rule.guarantee, rule.hold, job.sessions);
    view.covered = jobs[i].covered;
    view.used = job.account.charged() + stock.promised(index);
    view.priority = rule.priority;
    view.arrival = job.arrival;
    view.lend = rule.lend;
    view.waiting = wanted[i];
  }
  return out;
}

PoolView Core::State::pool_view() const {
  PoolView view;
  const Bytes promised = stock.promised();
  view.free_guaranteed = saturating_sub(book.free() + book.coming(), promised);
  // What is on its way may serve what is promised; the rest of the promise is taken from what is free. What
  // is being overwritten and nobody's counts as free: it is there in a moment, and scrubbing ahead must
  // refuse nobody.
  const Bytes scrubbing = book.scrubbing();
  view.free_now =
      saturating_sub(book.free() + scrubbing, saturating_sub(promised, book.coming() - scrubbing));
  return view;
}

void Core::State::settle() {
  std::vector<JobView> all = views();
  settle_cover(all, pool_view().free_guaranteed);
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    if (jobs[i].covered != all[i].covered) book.jobs()[i].changed = true;
    jobs[i].covered = all[i].covered;
  }
}

JobFigures Core::State::page(JobIndex index) const {
  const JobRule& rule = setup.jobs[index.value];
  const JobBook& job = book.job(index);
  const Bytes charged = job.account.charged();
  const Bytes transit = job.tally.in(ChunkState::returning) + job.tally.in(ChunkState::zombie) +
                        job.tally.in(ChunkState::unmaking) + job.tally.in(ChunkState::scrub);
  JobFigures figures;
  figures.guarantee = rule.guarantee.value;
  figures.in_force = in_force(rule.guarantee, rule.hold, job.sessions).value;
  figures.covered = jobs[index.value].covered.value;
  figures.limit = rule.limit.value;
  figures.used = (charged - transit).value;
  figures.charged = charged.value;
  figures.told_total = rule.told.value;
  figures.told_free = saturating_sub(rule.told, charged).value;
  figures.told_total_reclaimable = rule.told_reclaimable.value;
  figures.told_free_reclaimable = saturating_sub(rule.told_reclaimable, charged).value;
  figures.reclaim_target = being_reclaimed(index).value;
  figures.sessions = job.sessions;
  return figures;
}

JobRecord Core::State::record(JobIndex index) const {
  const JobRule& rule = setup.jobs[index.value];
  const JobFigures figures = page(index);
  JobRecord record;
  record.name = wire::Text<64>(rule.name);
  record.guarantee = figures.guarantee;
  record.in_force = figures.in_force;
  record.covered = figures.covered;
  record.limit = figures.limit;
  record.charged = figures.charged;
  record.in_transit = figures.charged - figures.used;
  record.told_total = figures.told_total;
  record.priority = rule.priority;
  record.sessions = static_cast<std::uint32_t>(figures.sessions);
  if (rule.hold == Hold::always) record.flags |= JobRecord::kHoldAlways;
  if (!rule.lend) record.flags |= JobRecord::kNoLend;
  if (figures.charged > figures.limit) record.flags |= JobRecord::kOverLimit;
  return record;
}

LedgerSnapshot Core::State::ledger() const {
  LedgerSnapshot snapshot;
  snapshot.totals.device_total = setup.device_total.value;
  snapshot.totals.pool = book.pool().value;
  snapshot.totals.chunk = setup.chunk.value;
  snapshot.totals.charged = book.charged().value;
  snapshot.totals.in_transit = book.in_transit().value;
  snapshot.totals.free = book.in_state(ChunkState::free).value;
  snapshot.totals.loose = book.loose().value;
  snapshot.totals.foreign = foreign.value;
  snapshot.totals.overhead = setup.overhead.value;
  snapshot.totals.helper_context = setup.helper_context.value;
  for (std::size_t i = 0; i < jobs.size(); ++i)
    snapshot.jobs.push_back(record(JobIndex{static_cast<std::uint32_t>(i)}));
  for (const BookedSession& session : book.session_slots()) {
    if (session.state == SessionPhase::vacant) continue;
    const Bytes transit = session.tally.in(ChunkState::returning) + session.tally.in(ChunkState::unmaking) +
                          session.tally.in(ChunkState::zombie) + session.tally.in(ChunkState::scrub);
    SessionRecord row;
    row.id = session.id.value;
    row.pid = static_cast<std::uint32_t>(session.pid);
    row.uid = session.uid;
    row.job = session.job.value;
    SessionState state = SessionState::attached;
    if (session.state == SessionPhase::orphan) state = SessionState::orphan;
    if (session.state == SessionPhase::ended) {
      state = session.tally.in(ChunkState::zombie).value != 0 ? SessionState::zombie : SessionState::leaving;
    }
    row.state = static_cast<std::uint32_t>(state);
    if (session.reclaimable) row.flags |= SessionRecord::kReclaimable;
    row.leases = session.tally.chunks();
    row.charged = session.tally.total().value;
    row.in_transit = transit.value;
    row.told_total = told_total(session).value;
    row.pid_start_time = session.start_time;
    row.label = wire::Text<32>(session.label);
    snapshot.sessions.push_back(row);
  }
  return snapshot;
}

void Core::State::publish(Actions& out) {
  bool any = false;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    JobBook& job = book.jobs()[i];
    if (!job.changed) continue;
    job.changed = false;
    any = true;
    const JobIndex index{static_cast<std::uint32_t>(i)};
    jobs[i].counters.peak_charged = std::max(jobs[i].counters.peak_charged, job.account.charged());
    out.emplace_back(actions::PublishJob{index, page(index)});
  }
  if (any) out.emplace_back(actions::PublishLedger{});
}

// At the limit only the job's own sessions are in the way; else those of all others. Where the broker is
// closed the remedy names them.
std::vector<Holder> Core::State::holders(JobIndex asking, Refusal::Rule rule) const {
  const bool own = rule == Refusal::Rule::limit;
  std::vector<Holder> found;
  if (rule == Refusal::Rule::malformed || rule == Refusal::Rule::closed) return found;
  for (const BookedSession& session : book.session_slots()) {
    if (session.state == SessionPhase::vacant || (session.job == asking) != own ||
        session.tally.total().value == 0)
      continue;
    const JobBook& job = book.job(session.job);
    Holder holder;
    holder.job = job.name;
    holder.pid = session.pid;
    holder.uid = session.uid;
    holder.ended = session.state == SessionPhase::ended;
    holder.held = session.tally.total();
    holder.above_guarantee = saturating_sub(
        job.account.charged(),
        in_force(setup.jobs[session.job.value].guarantee, setup.jobs[session.job.value].hold, job.sessions));
    found.push_back(std::move(holder));
  }
  std::stable_sort(found.begin(), found.end(), [](const Holder& a, const Holder& b) {
    if (a.above_guarantee != b.above_guarantee) return a.above_guarantee > b.above_guarantee;
    return a.held > b.held;
  });
  if (found.size() > kHoldersNamed) found.resize(kHoldersNamed);
  return found;
}

namespace {

std::string remedy_for(const Refusal& refusal, Bytes transit, Bytes helper_context) {
  const std::string less =
      refusal.headroom.value != 0 ? "ask for at most " + to_text(refusal.headroom) + ", or " : "";
  switch (refusal.rule) {
    case Refusal::Rule::malformed:
      return "correct the request";
    case Refusal::Rule::limit:
      if (transit.value != 0)
        return less + "ask again when " + to_text(transit) + " on their way back have come back";
      if (refusal.asked > refusal.limit) return less + "raise the job's limit in the config";
      return less + "free memory in this job, or raise its limit in the config";
    case Refusal::Rule::uncovered:
      return less + "wait until a job that is above its guarantee gives memory back";
    case Refusal::Rule::burst:
      return less + "raise the job's guarantee in the config, or wait until others free memory";
    case Refusal::Rule::device_full:
      return "end what holds device memory outside the broker, or configure a smaller pool";
    case Refusal::Rule::scrub_failed:
      return "ask again; the broker's log says why its helper could not overwrite memory (a context needs " +
             to_text(helper_context) + " outside the pool)";
    case Refusal::Rule::helper_failed:
      return "ask again; the broker's log says why its helper could not make a slab (a context needs " +
             to_text(helper_context) + " outside the pool)";
    case Refusal::Rule::send_failed:
      return "raise the broker's or the client's limit of open files, then ask again";
    case Refusal::Rule::closed:
      break;  // the core's own word (way_out)
  }
  return "";
}

const char* sentence_for(Refusal::Rule rule) {
  switch (rule) {
    case Refusal::Rule::malformed:
      return "the request makes no sense";
    case Refusal::Rule::limit:
      return "it would pass the job's limit";
    case Refusal::Rule::uncovered:
      return "it is within the guarantee, but others hold the memory now";
    case Refusal::Rule::burst:
      return "it is above the guarantee, and the rest is free for nobody or promised to others";
    case Refusal::Rule::device_full:
      return "the device gave no memory";
    case Refusal::Rule::scrub_failed:
      return "the memory could not be overwritten first";
    case Refusal::Rule::helper_failed:
      return "the broker's helper could not make a slab";
    case Refusal::Rule::send_failed:
      return "the memory could not be handed over";
    case Refusal::Rule::closed:
      return "the broker grants nothing";
  }
  return "";
}

}  // namespace

Refusal Core::State::refusal(const BookedSession& session, Bytes asked, Refusal::Rule rule, Bytes headroom,
                             const std::string& detail) const {
  const JobFigures figures = page(session.job);
  Refusal refusal;
  refusal.rule = rule;
  refusal.job = setup.jobs[session.job.value].name;
  refusal.asked = asked;
  refusal.used = {figures.charged};
  refusal.guarantee = {figures.in_force};
  refusal.covered = {figures.covered};
  refusal.limit = {figures.limit};
  refusal.headroom = headroom;
  refusal.free = book.free();
  refusal.holders = holders(session.job, rule);
  refusal.remedy = rule == Refusal::Rule::closed
                       ? way_out()
                       : remedy_for(refusal, {figures.charged - figures.used}, setup.helper_context);

  std::string& line = refusal.reason;
  line = "job " + refusal.job + ": " + to_text(asked) + " refused: " + sentence_for(rule);
  if (!detail.empty()) line += " (" + detail + ")";
  line += "; used " + to_text(refusal.used) + ", guarantee " + to_text(refusal.guarantee) + ", covered " +
          to_text(refusal.covered) + ", limit " + to_text(refusal.limit) + ", could get " +
          to_text(headroom) + " now, free " + to_text(refusal.free);
  for (std::size_t i = 0; i < refusal.holders.size(); ++i) {
    const Holder& holder = refusal.holders[i];
    line += (i == 0 ? "; held by " : ", ") + holder.job + " (pid " + std::to_string(holder.pid) +
            (holder.ended ? " that has ended, uid " : ", uid ") + std::to_string(holder.uid) + ", " +
            to_text(holder.held) + ")";
  }
  line += "; would help: " + refusal.remedy;
  return refusal;
}

}  // namespace apportion
