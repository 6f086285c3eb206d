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
  for (std::size_t i = 0; i < setup.jobs.size(); ++i) {
    const std::uint32_t slabs = i < setup.slab_places.size() ? setup.slab_places[i] : 0;
    Result<JobPageWriter> page = JobPageWriter::create(setup.epoch, setup.jobs[i], slabs);
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
      job_pages_(std::move(job_pages)),
      vacant_(job_pages_.size()),
      next_place_(job_pages_.size()) {}

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
  // Whoever of the job still reads its page finds no slab of a holder that is gone.
  for (auto slab = slabs_.begin(); slab != slabs_.end();) {
    const auto here = slab++;
    if (here->second.session == session) clear_slab(here->first);
  }
}

std::uint32_t Publisher::put_slab(JobIndex job, SessionId session, ChunkId id, Bytes bytes,
                                  const IpcHandle& handle) {
  std::set<std::uint32_t>& vacant = vacant_[job.value];
  const std::uint32_t place = vacant.empty() ? next_place_[job.value]++ : *vacant.begin();
  vacant.erase(place);
  job_pages_[job.value].put_slab(place, id.value, bytes, handle);
  slabs_.emplace(id, PlacedSlab{job, session, place});
  return place;
}

void Publisher::clear_slab(ChunkId id) {
  const auto found = slabs_.find(id);
  if (found == slabs_.end()) return;
  job_pages_[found->second.job.value].clear_slab(found->second.place);
  vacant_[found->second.job.value].insert(found->second.place);
  slabs_.erase(found);
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
