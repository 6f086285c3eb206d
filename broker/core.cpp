#include "broker/core.hpp"

#include <algorithm>
#include <utility>

#include "broker/core_state.hpp"

namespace apportion {

namespace {

std::vector<std::string> names_of(const CoreSetup& setup) {
  std::vector<std::string> names;
  for (const JobRule& job : setup.jobs)
    names.push_back(job.name);
  return names;
}

}  // namespace

actions::Log log_line(actions::Log::Level level, std::string event,
                      std::vector<std::pair<std::string, std::string>> fields) {
  return {level, std::move(event), std::move(fields)};
}

Core::State::State(CoreSetup setup_in, Journal& journal_in)
    : setup(std::move(setup_in)),
      journal(journal_in),
      book(setup.pool, setup.chunk, names_of(setup), journal),
      stock(book, setup),
      jobs(setup.jobs.size()) {
  adopt_predecessor();
  journal.set_epoch(setup.epoch);
  settle();
}

void Core::State::dispatch(const Event& event, Actions& out) {
  Actions body;
  std::visit([&](const auto& one) { on(one, body); }, event);
  finish(body, out);
}

// What follows every event: the stock moves on, finished orders are sent, figures are settled and published.
// Pages come first: whoever gets a grant can already read what it did to its quota (F12: publish before
// send).
void Core::State::finish(Actions& body, Actions& out) {
  serve_waiters(body);
  if (closed.empty()) stock.pump(body);
  send_failed(body);
  send_ready(body);
  send_answers(body);
  settle();
  publish(out);
  std::move(body.begin(), body.end(), std::back_inserter(out));
  if (started && !said_ready && (stock.filled() || !closed.empty())) {
    said_ready = true;
    out.emplace_back(actions::Ready{});
    out.emplace_back(actions::AskDeviceRoom{});  // what the device shows as used before anybody is here
  }
  if (setup.check_every_event) {
    book.check();
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      // What nobody's request can do: take a job above its limit.
      const Bytes used =
          book.jobs()[i].account.charged() + stock.promised(JobIndex{static_cast<std::uint32_t>(i)});
      APPORTION_CHECK(!closed.empty() || used <= setup.jobs[i].limit);
    }
  }
}

void Core::State::on(const events::DeviceRoom& event, Actions& out) {
  foreign = saturating_sub(event.foreign.value_or(Bytes{}), event.clients);
  stock.handle(event, out);
}

void Core::State::on(const events::Tick& event, Actions& out) {
  stock.tick(event.now);
  pass_time(event.now);
  if (stock.awaits_device()) out.emplace_back(actions::AskDeviceRoom{});
}

Core::Core(CoreSetup setup, Journal& journal) : state_(std::make_unique<State>(std::move(setup), journal)) {}
Core::~Core() = default;

void Core::start(SteadyNs now, Actions& out) {
  state_->started = true;
  Actions body;
  if (state_->closed.empty()) {
    state_->stock.start(now, body);
  } else {
    body.emplace_back(log_line(actions::Log::Level::error, "closed",
                               {{"why", state_->closed}, {"remedy", state_->way_out()}}));
  }
  state_->finish(body, out);
}

void Core::handle(const Event& event, Actions& out) {
  state_->dispatch(event, out);
}

bool Core::wants_tick() const {
  return state_->stock.wants_tick() || !state_->waiters.empty() || !state_->reclaiming.empty();
}
bool Core::ready() const {
  return state_->said_ready;
}
std::string Core::closed() const {
  return state_->closed_text();
}
LedgerSnapshot Core::ledger() const {
  return state_->ledger();
}
JobFigures Core::job_page(JobIndex index) const {
  return state_->page(index);
}
JobCounters Core::counters(JobIndex index) const {
  return state_->jobs[index.value].counters;
}
const std::deque<Refusal>& Core::refusals(JobIndex index) const {
  return state_->jobs[index.value].refusals;
}
std::size_t Core::job_count() const {
  return state_->jobs.size();
}
const Book& Core::book() const {
  return state_->book;
}
void Core::check() const {
  state_->book.check();
}

std::optional<JobIndex> Core::job_index(std::string_view name) const {
  const auto& rules = state_->setup.jobs;
  const auto rule =
      std::find_if(rules.begin(), rules.end(), [&](const JobRule& r) { return r.name == name; });
  if (rule == rules.end()) return std::nullopt;
  return JobIndex{static_cast<std::uint32_t>(rule - rules.begin())};
}

PoolFigures Core::pool() const {
  const Book& book = state_->book;
  PoolFigures figures;
  figures.pool = book.pool();
  figures.charged = book.charged();
  figures.in_transit = book.in_transit();
  figures.free = book.free();
  figures.loose = book.loose();
  figures.zombie = book.in_state(ChunkState::zombie);
  figures.orphan = book.in_state(ChunkState::orphan);
  figures.unsettled = book.unsettled();
  figures.foreign = state_->foreign;
  figures.chunks = book.chunk_count();
  return figures;
}

}  // namespace apportion
