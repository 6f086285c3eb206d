// Printed figures: what a broker costs that nobody asks for anything, with 64 clients attached.
//
// Voluntary context switches of all threads of keeper and broker, without clients and with them: at rest
// nothing wakes either but the keeper's ping, once a second, so the two must not differ. Memory: resident,
// and in proportion for pages that both processes map.
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "bench/gates.hpp"
#include "libclient/broker_link.hpp"

namespace apportion::bench {
namespace {

namespace fs = std::filesystem;

constexpr unsigned kClients = 64;

// The number after `name` in a file of /proc; 0 where there is none.
std::uint64_t figure_of(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  for (std::string word; file >> word;) {
    std::uint64_t value = 0;
    if (word == name && file >> value) return value;
  }
  return 0;
}

std::string proc(pid_t pid) {
  return "/proc/" + std::to_string(pid);
}

std::uint64_t switches(pid_t pid) {
  std::uint64_t sum = 0;
  std::error_code ignored;
  for (const auto& thread : fs::directory_iterator(proc(pid) + "/task", ignored))
    sum += figure_of(thread.path().string() + "/status", "voluntary_ctxt_switches:");
  return sum;
}

bool has_children(pid_t pid) {
  std::ifstream file(proc(pid) + "/task/" + std::to_string(pid) + "/children");
  pid_t child = 0;
  return static_cast<bool>(file >> child);
}

struct Two {
  std::uint64_t keeper;
  std::uint64_t broker;
};

}  // namespace

Status measure_rest(Run& run) {
  Result<std::unique_ptr<Stage>> stage =
      Stage::set_up({.device = 80_GiB, .jobs = "[jobs.bench]\nshare = \"1.0\"\n"});
  if (!stage) return stage.error();
  const Result<StatusAnswer> status = (*stage)->status();
  if (!status) return status.error();
  const pid_t keeper = (*stage)->keeper_pid();
  const auto broker = static_cast<pid_t>(status->broker.pid);
  const auto time = std::chrono::seconds(run.options.brief ? 1 : 10);
  const auto rest = [&]() -> Two {
    // The helper overwrites the new chunks first, and ends five seconds later.
    for (int i = 0; i < (run.options.brief ? 1 : 100); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      if (i > 2 && !has_children(broker)) break;
    }
    const Two before{switches(keeper), switches(broker)};
    std::this_thread::sleep_for(time);
    return {switches(keeper) - before.keeper, switches(broker) - before.broker};
  };
  const Two alone = rest();
  std::vector<std::unique_ptr<BrokerLink>> clients;
  for (unsigned i = 0; i < kClients; ++i) {
    BrokerLink::Options options;
    options.job = "bench";
    options.socket = (*stage)->socket();
    Result<std::unique_ptr<BrokerLink>> link = BrokerLink::open(options);
    if (!link) return link.error();
    clients.push_back(*std::move(link));
  }
  const Two crowd = rest();
  const std::string seconds = " in " + std::to_string(time.count()) + " s";
  const auto add = [&](const std::string& what, double value, const char* unit, const char* target) {
    run.report.plain.push_back({"rest", what, value, unit, target});
  };
  const char* const kPings = "as without clients: the keeper's pings alone";
  add("keeper, no client", static_cast<double>(alone.keeper), ("switches" + seconds).c_str(), "");
  add("keeper, 64 clients", static_cast<double>(crowd.keeper), ("switches" + seconds).c_str(), kPings);
  add("broker, no client", static_cast<double>(alone.broker), ("switches" + seconds).c_str(), "");
  add("broker, 64 clients", static_cast<double>(crowd.broker), ("switches" + seconds).c_str(), kPings);
  double proportional = 0;
  for (const auto& [name, pid] : {std::pair{"keeper", keeper}, std::pair{"broker", broker}}) {
    const std::string rollup = proc(pid) + "/smaps_rollup";
    add(std::string(name) + ", 64 clients, resident", static_cast<double>(figure_of(rollup, "Rss:")) / 1024,
        "MiB", "");
    proportional += static_cast<double>(figure_of(rollup, "Pss:")) / 1024;
  }
  add("both, 64 clients, proportional", proportional, "MiB", "at most 30 MiB");
  return Done{};
}

}  // namespace apportion::bench
