#include "broker/publisher.hpp"

#include <algorithm>
#include <chrono>

#include "shm/fault_point.hpp"

namespace apportion {
namespace {

constexpr std::chrono::milliseconds kLedgerPause{1};  // at most 1,000 publications a second

std::uint32_t to_page(SessionFigures::State state) {
  switch (state) {
    case SessionFigures::State::attached: return static_cast<std::uint32_t>(SessionState::attached);
    case SessionFigures::State::orphan: return static_cast<std::uint32_t>(SessionState::orphan);
    case SessionFigures::State::ended: return static_cast<std::uint32_t>(SessionState::zombie);
  }
  return 0;
}

}  // namespace

Result<std::unique_ptr<Publisher>> Publisher::create(Loop& loop, PublisherSetup setup,
                                                     std::function<LedgerFigures()> figures) {
  Result<LedgerWriter> ledger = LedgerWriter::create(setup.epoch, {setup.device_uuid, setup.device_name});
  if (!ledger.ok()) return ledger.error();
  std::vector<JobPageWriter> pages;
  for (const std::string& job : setup.jobs) {
    Result<JobPageWriter> page = JobPageWriter::create(setup.epoch, job);
    if (!page.ok()) return page.error();
    pages.push_back(*std::move(page));
  }
  return std::unique_ptr<Publisher>(
      new Publisher(loop, std::move(setup), std::move(figures), *std::move(ledger), std::move(pages)));
}

Publisher::Publisher(Loop& loop, PublisherSetup setup, std::function<LedgerFigures()> figures, LedgerWriter ledger,
                     std::vector<JobPageWriter> job_pages)
    : loop_(loop),
      setup_(std::move(setup)),
      figures_(std::move(figures)),
      ledger_(std::move(ledger)),
      job_pages_(std::move(job_pages)) {}

Result<int> Publisher::add_session(SessionId session) {
  Result<ReportPage> page = ReportPage::create(setup_.epoch, session.value);
  if (!page.ok()) return page.error();
  const int fd = page->fd();
  reports_.insert_or_assign(session, *std::move(page));
  return fd;
}

void Publisher::remove_session(SessionId session) { reports_.erase(session); }

void Publisher::publish_job(JobIndex job, const JobFigures& figures) {
  JobPageFigures page;
  page.guarantee = figures.guarantee.value;
  page.in_force = figures.in_force.value;
  page.covered = figures.covered.value;
  page.limit = figures.limit.value;
  page.charged = figures.charged.value;
  page.used = saturating_sub(figures.charged, figures.in_transit).value;
  page.told_total = figures.told_total.value;
  page.told_free = figures.told_free.value;
  page.told_total_reclaimable = figures.told_total_reclaimable.value;
  page.told_free_reclaimable = figures.told_free_reclaimable.value;
  page.sessions = figures.sessions;
  APPORTION_FAULT_POINT("job_page.before_publish");
  job_pages_[job.value].publish(page);
}

void Publisher::ledger_changed() {
  if (pause_) {
    changed_in_pause_ = true;
    return;
  }
  publish_ledger();
}

void Publisher::publish_ledger() {
  ledger_.publish(snapshot(figures_()));
  changed_in_pause_ = false;
  pause_ = loop_.after(kLedgerPause, [this] {
    pause_.reset();
    if (changed_in_pause_) publish_ledger();
  });
}

ReportFigures Publisher::report(SessionId session) const {
  const auto found = reports_.find(session);
  return found == reports_.end() ? ReportFigures{} : found->second.read_clamped(setup_.device_total);
}

LedgerSnapshot Publisher::snapshot(const LedgerFigures& figures) const {
  LedgerSnapshot out;
  const PoolFigures& pool = figures.pool;
  out.totals = {.device_total = setup_.device_total.value,
                .pool = pool.pool.value,
                .chunk = pool.chunk.value,
                .charged = pool.charged.value,
                .in_transit = pool.in_transit.value,
                .free = pool.free_chunks.value,
                .loose = pool.loose.value,
                .foreign = pool.foreign.value,
                .overhead = setup_.overhead.value,
                .helper_context = setup_.helper_context.value};
  for (const JobFigures& figure : figures.jobs) {
    JobRecord record;
    record.name = wire::Text<64>(figure.job);
    record.guarantee = figure.guarantee.value;
    record.in_force = figure.in_force.value;
    record.covered = figure.covered.value;
    record.limit = figure.limit.value;
    record.charged = figure.charged.value;
    record.in_transit = figure.in_transit.value;
    record.told_total = figure.told_total.value;
    record.priority = figure.priority;
    record.sessions = figure.sessions;
    out.jobs.push_back(record);
  }
  for (const SessionFigures& figure : figures.sessions) {
    SessionRecord record;
    record.id = figure.id.value;
    record.pid = static_cast<std::uint32_t>(figure.pid);
    record.uid = figure.uid;
    const auto job = std::find(setup_.jobs.begin(), setup_.jobs.end(), figure.job);
    record.job = static_cast<std::uint32_t>(job - setup_.jobs.begin());
    record.state = to_page(figure.state);
    record.flags = figure.reclaimable ? SessionRecord::kReclaimable : 0;
    record.leases = figure.chunks;
    record.charged = figure.charged.value;
    record.in_transit = figure.zombie.value;
    record.told_total = figure.told_total.value;
    record.pid_start_time = figure.start_time;
    record.label = wire::Text<32>(figure.label);
    // F23: what it says is idle is at most what it is charged.
    const Bytes idle{report(figure.id).bytes_idle};
    record.idle = std::min(idle, saturating_sub(figure.charged, figure.zombie)).value;
    if (record.job < out.jobs.size()) out.jobs[record.job].idle += record.idle;
    out.sessions.push_back(record);
  }
  out.jobs_total = static_cast<std::uint32_t>(out.jobs.size());
  out.sessions_total = static_cast<std::uint32_t>(out.sessions.size());
  return out;
}

}  // namespace apportion
