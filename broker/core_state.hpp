// The inside of the core, shared by its .cpp files only: the book, the stock, and what is published.
//
//   core.cpp           dispatch, start, publishing
//   core_closed.cpp    what a predecessor left
//   core_sessions.cpp  attach, resume, hang-up, death, goodbye
//   core_slabs.cpp     who may have slabs, and what follows when they are lost
//   core_leases.cpp    request, grant, ack, nack, return
//   core_waiting.cpp   requests that wait for what their own job gives back
//   core_figures.cpp   ledger records, job pages, the words of a refusal
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "broker/book.hpp"
#include "broker/core.hpp"
#include "broker/policy.hpp"
#include "broker/stock.hpp"

namespace apportion {

struct Core::State {
  State(CoreSetup setup_in, Journal& journal_in);

  // Events. Each appends to `out` what follows from it; dispatch() adds what follows from all of them.
  void dispatch(const Event& event, Actions& out);
  void finish(Actions& body, Actions& out);
  void on(const events::SessionWanted& event, Actions& out);
  void on(const events::Request& event, Actions& out);
  void on(const events::Acked& event, Actions& out);
  void on(const events::Nacked& event, Actions& out);
  void on(const events::GrantUnsent& event, Actions& out);
  void on(const events::Released& event, Actions& out);
  void on(const events::Reclaimed& event, Actions& out);
  void on(const events::Detached& event, Actions& out);
  void on(const events::HungUp& event, Actions& out);
  void on(const events::ProcessGone& event, Actions& out);
  void on(const events::SlabsLost& event, Actions& out);
  void on(const events::DeviceRoom& event, Actions& out);
  void on(const events::Tick& event, Actions& out);
  template <typename PoolEvent>
  void on(const PoolEvent& event, Actions& out) {
    stock.handle(event, out);
  }

  // core_closed.cpp
  void adopt_predecessor();
  void close_with(std::string why, bool known);
  void leave_unsettled(const BookedSession& session, Actions& out);  // its process is gone
  [[nodiscard]] std::string way_out() const;                         // how a person opens it again
  [[nodiscard]] std::string closed_text() const;

  // core_sessions.cpp
  [[nodiscard]] Result<JobIndex> job_for(const events::SessionWanted& event) const;
  void resume(const events::SessionWanted& event, Actions& out);
  void welcome(ConnectionId connection, SessionId id, bool resumed, Actions& out) const;
  [[nodiscard]] const BookedSession* live(SessionId id) const;  // attached or orphaned
  void forget_releases(SessionId id);

  // core_slabs.cpp
  [[nodiscard]] bool takes_slabs(JobIndex job) const {
    return setup.jobs[job.value].transport == Transport::ipc;
  }
  [[nodiscard]] Status may_open_slabs(const JobRule& rule, const events::SessionWanted& event) const;
  void tell_lost(SessionId session, std::vector<ChunkId> ids, const std::string& how, Actions& out) const;

  // core_leases.cpp
  struct Answer {  // a RELEASED that waits until the bytes are loose again
    SessionId session;
    RequestId request;
    Bytes bytes{};
    std::uint32_t chunks = 0;
    std::vector<ChunkId> awaited;
    std::vector<ChunkId> unknown;
  };
  [[nodiscard]] bool lent(ChunkId id, SessionId session, ChunkState state) const;
  [[nodiscard]] std::vector<ChunkId> offered(SessionId session, RequestId request,
                                             const std::vector<ChunkId>& ids) const;
  // A request in whole pieces.
  struct Wish {
    SessionId session;
    RequestId request;
    Bytes asked{};  // what the client asked for at least
    Bytes piece{};
    std::uint64_t least = 0;  // pieces
    std::uint64_t most = 0;
    [[nodiscard]] Bytes bytes() const { return piece * least; }
  };
  // What the rules allow of a wish, and an order for that. `ahead`: what earlier waiters of its job wait for;
  // `coming_too`: as if all that becomes F by itself were there.
  [[nodiscard]] Admission admission(const Wish& wish, Bytes ahead, bool coming_too) const;
  [[nodiscard]] static std::uint64_t pieces_of(const Wish& wish, const Admission& admission);
  [[nodiscard]] bool may_come(const Wish& wish, Bytes ahead) const;
  void order(const Wish& wish, std::uint64_t pieces);
  void take_back(ChunkId id);  // OFFERED, HELD or ORPHAN, given back by a live client
  void send_ready(Actions& out);
  void send_failed(Actions& out);
  void send_answers(Actions& out);

  // core_waiting.cpp
  struct Waiter {
    Wish wish;
    SteadyNs until{};  // 0: not known before the next tick
    bool expired = false;
    struct Asked {
      SessionId session;
      std::int32_t pid = 0;
      Bytes bytes{};
      enum class Gave : std::uint8_t { pending, in_full, less, nothing_in_time } gave = Gave::pending;
    };
    std::vector<Asked> asked{};
  };
  struct Reclaiming {  // a session was asked, and has not answered
    RequestId id;
    SessionId session;
    JobIndex job;
    Bytes bytes{};  // what is still to come
    SteadyNs until{};
  };
  // Bytes that the waiters of each job wait for.
  [[nodiscard]] std::vector<Bytes> waiting() const;
  [[nodiscard]] bool waits(SessionId session) const;
  [[nodiscard]] bool worth_waiting(const Waiter& waiter) const;
  [[nodiscard]] Bytes shortfall(const Wish& wish, Bytes ahead) const;
  [[nodiscard]] Bytes on_its_way_back(JobIndex job) const;
  [[nodiscard]] std::vector<const BookedSession*> givers(const Waiter& waiter) const;
  [[nodiscard]] Bytes being_reclaimed(JobIndex job) const;
  void serve_waiters(Actions& out);
  enum class Served : std::uint8_t { yes, waits, refused };
  [[nodiscard]] Served serve(Waiter& waiter, Bytes ahead, Actions& out);
  void ask_back(Waiter& waiter, Bytes ahead, Actions& out);
  void end_reclaim(SessionId session, bool answered);
  void forget_waiting(SessionId session);  // it asks no more, and is asked no more
  void pass_time(SteadyNs now);
  [[nodiscard]] static std::string asked_back_text(const Waiter& waiter);

  // core_figures.cpp
  [[nodiscard]] std::vector<JobView> views() const;
  [[nodiscard]] PoolView pool_view() const;
  void settle();  // the cover of every job
  [[nodiscard]] JobFigures page(JobIndex index) const;
  [[nodiscard]] JobRecord record(JobIndex index) const;
  [[nodiscard]] LedgerSnapshot ledger() const;
  [[nodiscard]] Bytes told_total(const BookedSession& session) const;
  [[nodiscard]] Refusal refusal(const BookedSession& session, Bytes asked, Refusal::Rule rule, Bytes headroom,
                                const std::string& detail) const;
  [[nodiscard]] std::vector<Holder> holders(JobIndex asking, Refusal::Rule rule) const;
  void refuse(const BookedSession& session, RequestId request, Refusal refusal, Actions& out);
  void publish(Actions& out);

  CoreSetup setup;
  Journal& journal;
  Book book;
  Stock stock;

  struct Job {
    Bytes covered{};  // V
    JobFigures published;
    JobCounters counters;
    std::deque<Refusal> refusals;
  };
  std::vector<Job> jobs;
  std::vector<Answer> answers;
  std::vector<Waiter> waiters;  // by arrival
  std::vector<Reclaiming> reclaiming;
  std::uint64_t last_reclaim = 0;
  std::vector<SessionId> overdue;  // did not give back in time, and has not been heard of since
  std::string closed;              // why; empty: open
  bool holders_known = true;  // closed: all who may hold what the predecessor left are sessions of the book
  Bytes foreign{};
  bool started = false;
  bool said_ready = false;
};

// A client's process ended, and held memory.
[[nodiscard]] actions::Log lost_client(const BookedSession& session, const std::string& job, Bytes bytes);

// A log line; values are texts already.
[[nodiscard]] actions::Log log_line(actions::Log::Level level, std::string event,
                                    std::vector<std::pair<std::string, std::string>> fields);

}  // namespace apportion
