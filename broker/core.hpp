// The broker's decisions: events in, actions out. Owns the book and writes the journal.
//
// Promises: handle() is the only way in; after it returns, journal and book agree and P = sum(u) + X + F
// holds to the byte. The same events give the same actions. A broken invariant ends the process. Never: reads
// a clock, opens anything, calls the driver, starts a thread, or blocks. Not thread-safe: one strand.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string_view>

#include "broker/actions.hpp"
#include "broker/events.hpp"
#include "broker/setup.hpp"

namespace apportion {

class Journal;

class Core {
 public:
  // `journal` is formatted for this setup (Journal::format) or holds what a predecessor left: then the core
  // starts closed, and everything in it is counted as charged. It must outlive the core.
  Core(CoreSetup setup, Journal& journal);
  ~Core();
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  // Once, before the first event: makes the pool (reserve = "all").
  void start(SteadyNs now, Actions& out);
  // Appends what has to be done. Unknown ids in an event are logged and change nothing.
  void handle(const Event& event, Actions& out);

  [[nodiscard]] bool wants_tick() const;
  [[nodiscard]] bool ready() const;
  [[nodiscard]] LedgerFigures ledger() const;
  [[nodiscard]] PoolFigures pool() const;
  [[nodiscard]] std::optional<JobIndex> job_index(std::string_view name) const;
  [[nodiscard]] std::size_t job_count() const;
  [[nodiscard]] JobFigures job(JobIndex index) const;
  [[nodiscard]] std::optional<SessionFigures> session(SessionId id) const;
  // The last refusals of a job, newest first, at most 8 ("apportion why").
  [[nodiscard]] const std::deque<Refusal>& refusals(JobIndex index) const;
  [[nodiscard]] Bytes chunk_bytes(ChunkId id) const;  // 0 where the id names nothing
  // Verifies every invariant by recount; ends the process where one is broken.
  void check() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace apportion
