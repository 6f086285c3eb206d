#include "cli/demo.hpp"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <set>

#include "cli/demo_stage.hpp"
#include "cli/interrupt.hpp"
#include "cli/programs.hpp"
#include "shm/device_name.hpp"

namespace apportion {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::json;

constexpr std::chrono::seconds kPatience{120};
constexpr std::size_t kMostOrders = 24;  // all of four; a sample for more

std::optional<std::uint64_t> bytes_or_none(const json& line, const char* key) {
  return line.contains(key) && line[key].is_number() ? std::optional(line[key].get<std::uint64_t>())
                                                     : std::nullopt;
}

// The next line of a racer that is about `event`.
Result<json> expect(ChildProcess& racer, const std::string& event) {
  const auto deadline = Clock::now() + kPatience;
  while (true) {
    Result<std::string> text = racer.line(deadline);
    if (!text.ok()) return text.error();
    const json line = json::parse(*text, nullptr, false);
    if (!line.is_object()) return Error{Errc::protocol, "a racer said: " + *text};
    if (line.value("event", "") == event) return line;
  }
}

struct Start {
  std::vector<std::string> arguments;  // beside the program
  std::map<std::string, std::string> variables;
};

class Race {
 public:
  [[nodiscard]] static Result<Race> start(const std::vector<Start>& starts) {
    Result<std::string> program = find_program(Program::race_worker);
    if (!program.ok()) return program.error();
    Race race;
    for (const Start& start : starts) {
      std::vector<std::string> argv{*program};
      argv.insert(argv.end(), start.arguments.begin(), start.arguments.end());
      Result<ChildProcess> racer = ChildProcess::start(argv, start.variables, "/dev/null");
      if (!racer.ok()) return racer.error();
      race.racers_.push_back(*std::move(racer));
    }
    for (ChildProcess& racer : race.racers_)
      if (Result<json> ready = expect(racer, "ready"); !ready.ok()) return ready.error();
    return race;
  }

  // All at once: both gates of each are opened before anybody's first step is over.
  [[nodiscard]] Status release_together(const std::vector<std::size_t>& order) {
    for (const std::size_t i : order)
      for (int gate = 0; gate < 2; ++gate)
        if (Status poked = racers_[i].poke(); !poked.ok()) return poked;
    return Done{};
  }

  // One has all it gets before the next begins.
  [[nodiscard]] Result<std::vector<json>> release_in_turn(const std::vector<std::size_t>& order) {
    std::vector<json> results(racers_.size());
    for (const std::size_t i : order) {
      if (Status poked = release_together({i}); !poked.ok()) return poked.error();
      Result<json> result = expect(racers_[i], "result");
      if (!result.ok()) return result.error();
      results[i] = *std::move(result);
    }
    return results;
  }

  [[nodiscard]] Result<std::vector<json>> results() {
    std::vector<json> all;
    for (ChildProcess& racer : racers_) {
      Result<json> result = expect(racer, "result");
      if (!result.ok()) return result.error();
      all.push_back(*std::move(result));
    }
    return all;
  }

  // Each checks once more what it wrote, and ends.
  [[nodiscard]] Status finish(const std::vector<json>& results) {
    for (std::size_t i = 0; i < racers_.size(); ++i) {
      racers_[i].close_input();
      Result<json> end = expect(racers_[i], "end");
      if (!end.ok()) return end.error();
      if (bytes_or_none(*end, "kept_bytes") != bytes_or_none(results[i], "got_bytes"))
        return Error{Errc::protocol,
                     "process " + std::to_string(racers_[i].pid()) + " lost bytes while it held them"};
      Result<int> status = racers_[i].wait(Clock::now() + kPatience);
      if (!status.ok()) return status.error();
    }
    return Done{};
  }

 private:
  std::vector<ChildProcess> racers_;
};

Racer racer_of(const json& line) {
  Racer racer;
  racer.pid = line.value("pid", 0);
  racer.told = bytes_or_none(line, "told_bytes");
  racer.wanted = bytes_or_none(line, "wanted_bytes");
  racer.got = bytes_or_none(line, "got_bytes").value_or(0);
  racer.ok = line.value("ok", false);
  return racer;
}

std::vector<std::vector<std::size_t>> orders_of(const DemoOptions& options) {
  std::vector<std::size_t> order(options.clients);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::vector<std::vector<std::size_t>> orders;
  if (options.all_orders && options.clients <= 4) {
    do
      orders.push_back(order);
    while (std::next_permutation(order.begin(), order.end()));
    return orders;
  }
  std::mt19937_64 random(options.seed);
  for (std::size_t i = 0; i < (options.all_orders ? kMostOrders : 1); ++i) {
    std::shuffle(order.begin(), order.end(), random);
    orders.push_back(order);
  }
  return orders;
}

Start start_of(const DemoStage& stage, const DemoOptions& options) {
  return {{"--device", options.device, "--first-request", std::to_string(stage.first_request().value)},
          stage.variables()};
}

Result<std::vector<Racer>> race_bare(DemoStage& stage, const DemoOptions& options,
                                     const std::vector<std::size_t>& order) {
  std::vector<Start> starts(options.clients, start_of(stage, options));
  Result<Race> race = Race::start(starts);
  if (!race.ok()) return race.error();
  if (Status released = race->release_together(order); !released.ok()) return released.error();
  Result<std::vector<json>> results = race->results();
  if (!results.ok()) return results.error();
  std::vector<Racer> racers;
  for (const json& result : *results)
    racers.push_back(racer_of(result));
  if (Status finished = race->finish(*results); !finished.ok()) return finished.error();
  return racers;
}

// One race through the broker; adds to overlap what two programs had mapped at once.
Result<std::vector<Racer>> race_leased(DemoStage& stage, const DemoOptions& options,
                                       const std::vector<std::size_t>& order,
                                       std::optional<std::uint64_t>& overlap) {
  std::vector<Start> starts;
  for (unsigned i = 0; i < options.clients; ++i) {
    Start start = start_of(stage, options);
    start.arguments.insert(start.arguments.end(), {"--job", stage.jobs()[i].name});
    if (options.break_name == "overlap" && i < 2) {
      start.arguments.push_back(i == 0 ? "--pass-chunk-to" : "--take-chunk-from");
      start.arguments.push_back(stage.variables().at("APPORTION_SOCKET") + ".behind");
    }
    starts.push_back(std::move(start));
  }
  Result<Race> race = Race::start(starts);
  if (!race.ok()) return race.error();
  Result<std::vector<json>> results = std::vector<json>{};
  if (options.all_orders) {
    results = race->release_in_turn(order);
  } else {
    if (Status released = race->release_together(order); !released.ok()) return released.error();
    results = race->results();
  }
  if (!results.ok()) return results.error();
  Result<std::optional<std::uint64_t>> seen = stage.overlap();
  if (!seen.ok()) return seen.error();
  if (*seen) overlap = overlap.value_or(0) + **seen;
  std::vector<Racer> racers;
  for (std::size_t i = 0; i < results->size(); ++i) {
    racers.push_back(racer_of((*results)[i]));
    racers.back().job = stage.jobs()[i].name;
  }
  if (Status finished = race->finish(*results); !finished.ok()) return finished.error();
  return racers;
}

Status check(const DemoOptions& options) {
  if (options.clients < 1 || options.clients > 64)
    return Error{Errc::invalid, "--clients " + std::to_string(options.clients) + ": 1 to 64"};
  if (!options.break_name.empty() && options.break_name != "overlap")
    return Error{Errc::invalid, "--break " + options.break_name + ": there is \"overlap\""};
  if (options.break_name == "overlap" && (options.clients < 2 || options.all_orders))
    return Error{Errc::invalid, "--break overlap: needs two clients, and one order"};
  return Done{};
}

}  // namespace

Result<DemoResult> run_demo(const DemoOptions& options) {
  if (Status good = check(options); !good.ok()) return good.error();
  const CatchInterrupts interrupts;  // before the stage: the stage, gone before it, must end what was started
  Result<DemoStage> stage = DemoStage::set_up(options);
  if (!stage.ok()) return stage.error();
  const std::vector<std::vector<std::size_t>> orders = orders_of(options);
  DemoResult out;
  out.simulated = stage->simulated();
  Result<std::vector<Racer>> bare = race_bare(*stage, options, orders.front());
  if (!bare.ok()) return bare.error();
  out.bare = *std::move(bare);
  if (Status fresh = stage->fresh_device(); !fresh.ok()) return fresh.error();
  if (Status started = stage->start_broker(); !started.ok()) return started.error();
  Result<StatusAnswer> status = stage->status();
  if (!status.ok()) return status.error();
  out.device_bytes = status->broker.totals.device_total;
  out.pool_bytes = status->broker.totals.pool;
  std::set<std::vector<std::uint64_t>> distinct;
  for (const std::vector<std::size_t>& order : orders) {
    Result<std::vector<Racer>> racers = race_leased(*stage, options, order, out.overlap_bytes);
    if (!racers.ok()) return racers.error();
    std::vector<std::uint64_t> figures;
    for (Racer& racer : *racers) {
      for (const wire::JobRow& row : status->jobs) {
        if (row.job.name.view() != racer.job) continue;
        racer.guarantee = row.job.guarantee;
        racer.limit = row.job.limit;
      }
      figures.insert(figures.end(), {racer.told.value_or(0), racer.wanted.value_or(0), racer.got});
    }
    distinct.insert(std::move(figures));
    out.broker = *std::move(racers);
    ++out.orders;
  }
  out.distinct_results = static_cast<unsigned>(distinct.size());
  if (Status stopped = stage->stop_broker(); !stopped.ok()) return stopped.error();
  return out;
}

}  // namespace apportion
