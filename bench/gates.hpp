// The gates: each measures one thing and adds its figures to the report.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench/report.hpp"
#include "bench/stage.hpp"
#include "bench/traces/catalog.hpp"

namespace apportion::bench {

struct Options {
  unsigned rounds = 15;
  bool brief = false;  // small traces, short waits: shows that all works, measures nothing
  std::uint64_t seed = 1;
  std::vector<std::string> files;  // --trace: in place of the generated traces
};

// What gates share. One stage holds the client of this process, which can have one simulated device only.
struct Run {
  Options options;
  std::vector<NamedTrace> traces;
  Report report;

  // A broker with the job "bench", large enough for A8.
  [[nodiscard]] Result<Stage*> arena_stage();

 private:
  std::unique_ptr<Stage> arena_stage_;
};

struct Gate {
  const char* id;
  const char* what;
  Status (*measure)(Run&);
};

// In the order in which they run. Those that fork come before those that attach in this process.
[[nodiscard]] const std::vector<Gate>& gates();

// Errors: what kept it from measuring; a bad figure is none.
[[nodiscard]] Status measure_quiet(Run& run);        // A8
[[nodiscard]] Status measure_speed(Run& run);        // A1, A2
[[nodiscard]] Status measure_memory(Run& run);       // M1
[[nodiscard]] Status measure_holes(Run& run);        // M3
[[nodiscard]] Status measure_completions(Run& run);  // M7
[[nodiscard]] Status measure_lease(Run& run);        // B1
[[nodiscard]] Status measure_many(Run& run);         // B3
[[nodiscard]] Status measure_race(Run& run);         // B5
[[nodiscard]] Status measure_info(Run& run);         // printed only
[[nodiscard]] Status measure_rest(Run& run);         // printed only

}  // namespace apportion::bench
