#include "broker/publisher.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "shm/fault_point.hpp"

namespace apportion {
namespace {

constexpr std::chrono::milliseconds kLedgerPause{1};  // at most 1,000 publications a second

}  // namespace

Result<std::unique_ptr<Publisher>> Publisher::create(Loop& loop, PublisherSetup setup,
                                                     std::function<LedgerSnapshot()> figures) {
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

Publisher::Publisher(Loop& loop, PublisherSetup setup, std::function<LedgerSnapshot()> figures,
                     LedgerWriter ledger, std::vector<JobPageWriter> job_pages)
    : loop_(loop),
      setup_(std::move(setup)),
      figures_(std::move(figures)),
      ledger_(std::move(ledger)),
      job_pages_(std::move(job_pages)) {}

Result<std::vector<Fd>> Publisher::pages_for(SessionId session, JobIndex job) {
  Result<ReportPage> page = ReportPage::create(setup_.epoch, session.value);
  if (!page.ok()) return page.error();
  std::vector<Fd> copies;
  for (const int fd : {ledger_.fd(), job_pages_[job.value].fd(), page->fd()}) {
    copies.emplace_back(fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (!copies.back()) return system_error("cannot copy a page's descriptor", errno);
  }
  reports_.insert_or_assign(session, *std::move(page));
  return copies;
}

void Publisher::remove_session(SessionId session) {
  reports_.erase(session);
}

void Publisher::publish_job(JobIndex job, const JobFigures& figures) {
  APPORTION_FAULT_POINT("job_page.before_publish");
  job_pages_[job.value].publish(figures);
}

void Publisher::ledger_changed() {
  if (pause_) {
    changed_in_pause_ = true;
    return;
  }
  publish_ledger();
}

void Publisher::publish_ledger() {
  ledger_.publish(snapshot());
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

LedgerSnapshot Publisher::snapshot() const {
  LedgerSnapshot out = figures_();
  for (SessionRecord& session : out.sessions) {
    // F23: what a client says is idle is at most what it is charged.
    session.idle = std::min(report(SessionId{session.id}).bytes_idle,
                            session.charged - std::min(session.charged, session.in_transit));
    if (session.job < out.jobs.size()) out.jobs[session.job].idle += session.idle;
  }
  return out;
}

}  // namespace apportion
