// `./dev bench`: runs the gates that are named, or all, and prints a line for each figure.
//
// Exit status: 0; 1 where a count that must be 0 is not, or with --strict any figure is over; 2 where it
// could not measure.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <iostream>
#include <set>
#include <thread>

#include "bench/gates.hpp"
#include "bench/replay.hpp"

namespace {

using namespace apportion;
using namespace apportion::bench;

constexpr int kCannot = 2;

int cannot(const std::string& why) {
  std::cerr << "bench: " << why << '\n';
  return kCannot;
}

std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  return "unknown";
}

std::vector<std::pair<std::string, std::string>> host_facts(const Options& options) {
  return {{"compiler", APPORTION_COMPILER},
          {"build", APPORTION_BUILD_TYPE},
          {"processor", processor()},
          {"cores", std::to_string(std::thread::hardware_concurrency())},
          {"rounds", std::to_string(options.rounds)},
          {"seed", std::to_string(options.seed)},
          {"brief", options.brief ? "1" : "0"}};
}

// glibc's mutex skips its atomics while a process has one thread, which would flatter the peer that locks.
void park_a_thread() {
  std::thread([] {
    for (;;)
      ::pause();
  }).detach();
}

int run(const Options& options, const std::vector<std::string>& wanted, const std::string& json,
        bool strict) {
  Run run;
  run.options = options;
  for (const std::string& file : options.files) {
    Result<NamedTrace> trace = trace_of_file(file);
    if (!trace) return cannot(trace.error().message);
    run.traces.push_back(*std::move(trace));
  }
  if (run.traces.empty()) run.traces = generated_traces(options.seed, options.brief);
  for (const auto& [name, value] : host_facts(options))
    std::cout << name << ": " << value << '\n';
  for (const NamedTrace& each : run.traces) {
    const Replay trace(each.trace);
    std::cout << "trace " << each.name << ": " << each.parameters << "; pairs=" << trace.pairs
              << " peak=" << to_text(Bytes{trace.peak_bytes}) << '\n';
  }
  park_a_thread();
  print_head(std::cout);
  int failed = 0;
  std::set<Status (*)(Run&)> done;
  for (const Gate& gate : gates()) {
    const bool asked = wanted.empty() || std::find(wanted.begin(), wanted.end(), gate.id) != wanted.end();
    if (!asked || !done.insert(gate.measure).second) continue;
    const std::size_t figures = run.report.gates.size();
    const std::size_t plain = run.report.plain.size();
    const Status measured = gate.measure(run);
    for (std::size_t i = figures; i < run.report.gates.size(); ++i)
      print_gate(std::cout, run.report.gates[i]);
    for (std::size_t i = plain; i < run.report.plain.size(); ++i)
      print_plain(std::cout, run.report.plain[i]);
    if (!measured) failed = cannot(std::string(gate.id) + ": " + measured.error().message);
    if (measured && run.report.gates.size() == figures && run.report.plain.size() == plain)
      failed = cannot(std::string(gate.id) + ": none of these traces is for it");
  }
  if (!json.empty()) {
    std::ofstream file(json);
    file << to_json(run.report, host_facts(options));
    file.close();
    if (!file) return cannot("cannot write " + json);
  }
  if (options.brief) std::cout << "brief: these figures say that it works, not how fast it is\n";
  if (failed != 0) return failed;
  return run.report.any_count_over() || (strict && run.report.any_over()) ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Measures Apportion against peers in the same run (docs/bench.md)."};
  app.name("bench");
  Options options;
  std::vector<std::string> wanted;
  std::string json;
  bool strict = false;
  bool list = false;
  std::set<std::string> ids;
  for (const Gate& gate : gates())
    ids.insert(gate.id);
  app.add_option("GATE", wanted, "only these: see --list")->check(CLI::IsMember(ids));
  app.add_option("--json", json, "write every figure to FILE");
  app.add_option("--rounds", options.rounds, "of a timed figure, 15 where not given")
      ->check(CLI::Range(1, 1000));
  app.add_option("--seed", options.seed, "of the generated traces, 1 where not given");
  app.add_option("--trace", options.files,
                 "replay this RMM log (CSV) in place of the generated traces; may be repeated")
      ->allow_extra_args(false);
  app.add_flag("--brief", options.brief,
               "small traces and short waits: shows that it works, measures nothing");
  app.add_flag("--strict", strict, "exit status 1 where any figure is OVER, not only a count that must be 0");
  app.add_flag("--list", list, "list the gates and end");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    return cannot(error.what());
  }
  if (list) {
    for (const Gate& gate : gates())
      std::cout << gate.id << '\t' << gate.what << '\n';
    return 0;
  }
  return run(options, wanted, json, strict);
}
