// The closed broker: what a predecessor left is counted and named, and a person is told how to get it back.
//
// Until recovery is built, leases are charged to their jobs while their sessions' processes live, the rest of
// the pool is unsettled, and nothing is granted. Over-counting, never under-counting (F11, F17).
#include <algorithm>

#include "broker/core_state.hpp"
#include "broker/journal_image.hpp"

namespace apportion {

namespace {

constexpr std::size_t kPidsNamed = 8;

}  // namespace

void Core::State::close_with(std::string why, bool known) {
  if (closed.empty()) closed = std::move(why);
  holders_known = known;
}

void Core::State::adopt_predecessor() {
  if (!setup.closed.empty()) {
    book.leave_rest_unsettled();
    return close_with(setup.closed, false);
  }
  const Result<JournalImage> read = read_journal(journal.memory());
  APPORTION_CHECK(read.ok());
  const JournalImage& image = *read;
  if (image.empty()) return;
  if (image.shape.pool != setup.pool || image.shape.chunk != setup.chunk) {
    book.leave_rest_unsettled();
    return close_with("an earlier broker left a pool of another size (" + to_text(image.shape.pool) + ")",
                      false);
  }
  bool known = image.damaged.empty();
  for (const JournalImage::Session& session : image.sessions) {
    if (session.state == SessionPhase::ended) continue;  // what its zombies hold is unsettled
    const JournalImage::Job* job = image.job_in(session.fields.job_slot);
    const auto rule = std::find_if(setup.jobs.begin(), setup.jobs.end(),
                                   [&](const JobRule& r) { return job != nullptr && r.name == job->name; });
    if (rule == setup.jobs.end()) {  // its job is gone from the config: its leases stay unsettled
      known = false;
      continue;
    }
    const JobIndex index{static_cast<std::uint32_t>(rule - setup.jobs.begin())};
    book.adopt_session(session.id, index, session.fields);
    for (const JournalImage::Lease& lease : image.chunks) {
      if (lease.session_slot != session.id.slot() || lease.bytes > book.loose()) continue;
      book.adopt_chunk(lease.id, lease.bytes, session.id, lease.marks.slab);
    }
  }
  book.leave_rest_unsettled();
  std::string why = "an earlier broker left " + std::to_string(image.chunks.size()) +
                    " chunks, and this version cannot take them over yet";
  if (!image.damaged.empty())
    why += " (" + std::to_string(image.damaged.size()) + " records of its journal are damaged)";
  close_with(std::move(why), known);
}

// Its memory is with the keeper, and perhaps with a forked child; who held it need not be named any more.
void Core::State::leave_unsettled(const BookedSession& session, Actions& out) {
  const SessionId id = session.id;
  const Bytes lost = session.tally.total();
  if (lost.value != 0) out.emplace_back(lost_client(session, book.job(session.job).name, lost));
  book.leave_unsettled(id);
  if (lost.value != 0 && book.charged().value == 0)
    out.emplace_back(log_line(actions::Log::Level::warning, "closed", {{"remedy", way_out()}}));
  out.emplace_back(actions::EndSession{id, "its process is gone", {}});
}

std::string Core::State::way_out() const {
  std::string pids;
  std::size_t holders = 0;
  for (const BookedSession& session : book.session_slots()) {
    if (session.state == SessionPhase::vacant || session.tally.total().value == 0) continue;
    if (++holders > kPidsNamed) continue;
    pids += (pids.empty() ? "pid " : ", ") + (session.pid == 0 ? "?" : std::to_string(session.pid));
  }
  if (holders > kPidsNamed) pids += " and " + std::to_string(holders - kPidsNamed) + " more";
  if (!holders_known) pids = "the earlier broker's clients" + (pids.empty() ? "" : " (" + pids + ", others)");
  return (pids.empty() ? "" : "end " + pids + ", then ") + "stop apportiond (kill -TERM " +
         std::to_string(setup.stop_pid) + ") and start it again";
}

std::string Core::State::closed_text() const {
  return closed.empty() ? "" : closed + ": " + way_out();
}

}  // namespace apportion
