// The pages that clients read, and the pages they write: ledger, one job page per job, one report page per
// session.
//
// Owns: the memfds and their mappings, and which place of a slab table is whose; new in each epoch. Promises:
// a job page is written at once, for the GRANT that depends on it; the ledger at most a thousand times a
// second, and always once more after the last change. Never: believes a report page (F23: figures are
// clamped, and only shown).
#pragma once

#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "broker/ids.hpp"
#include "broker/server_loop.hpp"
#include "shm/job_page.hpp"
#include "shm/ledger.hpp"
#include "shm/report_page.hpp"

namespace apportion {

struct PublisherSetup {
  std::uint64_t epoch = 1;
  std::string device_uuid;
  std::string device_name;
  Bytes device_total;
  std::vector<std::string> jobs;                // in the order of JobIndex
  std::vector<std::uint32_t> slab_places = {};  // by job: how many slabs its page has room for; empty: none
};

class Publisher {
 public:
  // `figures` is asked when the ledger is due.
  [[nodiscard]] static Result<std::unique_ptr<Publisher>> create(Loop& loop, PublisherSetup setup,
                                                                 std::function<LedgerSnapshot()> figures);

  // Copies of what goes with its WELCOME: ledger, job page, and a new report page of its own. Errc::system:
  // out of descriptors or memory, and nothing is left of it.
  [[nodiscard]] Result<std::vector<Fd>> pages_for(SessionId session, JobIndex job);
  void remove_session(SessionId session);

  void publish_job(JobIndex job, const JobFigures& figures);
  // Puts a slab where the job's sessions find it; its place. Low places first: a page costs what was used of
  // it. The book's slabs always have room (slab_places is as many as there can be).
  [[nodiscard]] std::uint32_t put_slab(JobIndex job, SessionId session, ChunkId id, Bytes bytes,
                                       const IpcHandle& handle);
  void clear_slab(ChunkId id);  // one that is not there is gone already
  void ledger_changed();

  [[nodiscard]] std::uint64_t generation() const { return ledger_.generation(); }

  // What a session says about itself, clamped to the device. Zeros for a session that has no page.
  [[nodiscard]] ReportFigures report(SessionId session) const;

  // The core's figures with what the sessions say about themselves filled in: what the ledger shows and
  // STATUS answers.
  [[nodiscard]] LedgerSnapshot snapshot() const;

 private:
  Publisher(Loop& loop, PublisherSetup setup, std::function<LedgerSnapshot()> figures, LedgerWriter ledger,
            std::vector<JobPageWriter> job_pages);
  void publish_ledger();

  Loop& loop_;
  PublisherSetup setup_;
  std::function<LedgerSnapshot()> figures_;
  LedgerWriter ledger_;
  std::vector<JobPageWriter> job_pages_;
  struct PlacedSlab {
    JobIndex job;
    SessionId session;
    std::uint32_t place = 0;
  };
  std::unordered_map<ChunkId, PlacedSlab> slabs_;
  std::vector<std::set<std::uint32_t>> vacant_;  // by job: cleared places below next_place_
  std::vector<std::uint32_t> next_place_;        // by job: the lowest that was never used
  std::unordered_map<SessionId, ReportPage> reports_;
  std::unique_ptr<Loop::Watch> pause_;  // set for a millisecond after each publication
  bool changed_in_pause_ = false;
};

}  // namespace apportion
