// The broker's decisions: events in, actions out. Owns the book and writes the journal.
//
// Promises: handle() is the only way in; after it returns, journal and book agree and P = sum(u) + X + F
// holds to the byte. The same events give the same actions. A broken invariant ends the process. Never: reads
// a clock, opens anything, calls the driver, starts a thread, or blocks. Not thread-safe: one strand.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "broker/actions.hpp"
#include "broker/events.hpp"
#include "broker/setup.hpp"
#include "shm/job_layout.hpp"
#include "shm/ledger.hpp"

namespace apportion {

class Book;
class Journal;

class Core {
 public:
  // `journal` is newly formatted for this setup, or holds what a predecessor left: then the core starts
  // closed, grants nothing, and counts all of the pool as charged or unsettled. It must outlive the core.
  Core(CoreSetup setup, Journal& journal);
  ~Core();
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  // Once, before the first event: makes the pool (reserve = "all").
  void start(SteadyNs now, Actions& out);
  // Appends what has to be done. An id in an event that names nothing (any more) changes nothing.
  void handle(const Event& event, Actions& out);

  [[nodiscard]] bool wants_tick() const;
  [[nodiscard]] bool ready() const;
  // Why nothing is granted, and what to do about it now; empty where the broker is open.
  [[nodiscard]] std::string closed() const;

  // What PublishLedger is about. epoch and generation are the writer's to fill.
  [[nodiscard]] LedgerSnapshot ledger() const;
  [[nodiscard]] PoolFigures pool() const;
  [[nodiscard]] std::optional<JobIndex> job_index(std::string_view name) const;
  [[nodiscard]] std::size_t job_count() const;
  [[nodiscard]] JobFigures job_page(JobIndex index) const;
  [[nodiscard]] JobCounters counters(JobIndex index) const;
  // The last refusals of a job, newest first, at most 8 ("apportion why").
  [[nodiscard]] const std::deque<Refusal>& refusals(JobIndex index) const;

  // The truth, for tests and for check(): which chunk is whose.
  [[nodiscard]] const Book& book() const;
  // Verifies every invariant by recount; ends the process where one is broken.
  void check() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace apportion
