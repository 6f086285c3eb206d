#include "bench/gates.hpp"

#include <algorithm>

#include "bench/replay.hpp"

namespace apportion::bench {

Result<Stage*> Run::arena_stage() {
  if (!arena_stage_) {
    // Two threads with room for twice their peaks (A8), and what a broker keeps for contexts.
    std::uint64_t bytes = 0;
    for (const NamedTrace& trace : traces)
      bytes = std::max(bytes, Replay(trace.trace).peak_bytes * 5);
    StageOptions stage;
    stage.device = std::max(16_GiB, round_up(Bytes{bytes}, 1_GiB));
    stage.jobs = "[jobs.bench]\nshare = \"1.0\"\n";
    Result<std::unique_ptr<Stage>> made = Stage::set_up(stage);
    if (!made) return made.error();
    arena_stage_ = *std::move(made);
  }
  return arena_stage_.get();
}

const std::vector<Gate>& gates() {
  static const std::vector<Gate> all{
      {"A8", "10^6 warm pairs: system calls, driver calls, heap allocations", measure_quiet},
      {"M1", "mapped / live peak, training and serving", measure_memory},
      {"M3", "mapped / live peak, pin-hole", measure_holes},
      {"M7", "whether a trace fits in 1.02 and 1.5 times its peak, again and again", measure_completions},
      {"A1", "allocate and free, against Ref8 (with A2: against Ref8 and a mutex)", measure_speed},
      {"A2", "with A1", measure_speed},
      {"info", "apportion_get_info (printed)", measure_info},
      {"B1", "lease round trip, against a ping-pong with one descriptor", measure_lease},
      {"B3", "64 chunks in one grant, per chunk, against single leases", measure_many},
      {"B5", "start race of 32 clients, against a plain epoll server", measure_race},
      {"rest", "a broker at rest with 64 clients (printed)", measure_rest},
  };
  return all;
}

}  // namespace apportion::bench
