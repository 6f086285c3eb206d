#include "bench/traces/catalog.hpp"

#include <filesystem>

#include "bench/traces/pin_hole.hpp"
#include "bench/traces/serving.hpp"
#include "bench/traces/training.hpp"

namespace apportion::bench {

std::vector<NamedTrace> generated_traces(std::uint64_t seed, bool brief) {
  TrainingShape fixed;
  fixed.seed = seed;
  if (brief) {
    fixed.layers = 4;
    fixed.batch = 2;
    fixed.iterations = 4;
  }
  TrainingShape varying = fixed;
  varying.sequence_min = 256;
  TrainingShape recompute = varying;
  recompute.recompute = true;
  recompute.micro_steps = 4;
  recompute.batch *= 4;  // what it is done for
  TrainingShape lora = varying;
  lora.lora_rank = 16;
  ServingShape pages;
  pages.seed = seed;
  if (brief) {
    pages.layers = 4;
    pages.steps = 20;
    pages.requests_most = 16;
  }
  ServingShape parts = pages;
  parts.page_parts = 32;
  if (!brief) parts.steps = 1000;
  PinHoleShape holes;
  holes.seed = seed;
  if (brief) holes.total_bytes = std::uint64_t{1} << 30;
  std::vector<NamedTrace> traces;
  const auto add = [&](const char* name, const auto& shape, Trace trace) {
    traces.push_back({name, to_text(shape), false, std::move(trace)});
  };
  add("dl-varying", varying, training_trace(varying));
  if (!brief) {
    add("dl-fixed", fixed, training_trace(fixed));
    add("dl-recompute", recompute, training_trace(recompute));
    add("dl-lora", lora, training_trace(lora));
    add("llm-2MiB", pages, serving_trace(pages));
  }
  add("llm-64KiB", parts, serving_trace(parts));
  add("pin-hole", holes, pin_hole_trace(holes));
  traces.back().adversarial = true;
  return traces;
}

Result<NamedTrace> trace_of_file(const std::string& path) {
  Result<Trace> trace = testing::read_trace(path);
  if (!trace) return trace.error();
  std::vector<bool> live(trace->blocks);
  std::size_t pairs = 0;
  for (std::size_t at = 0; at < trace->events.size(); ++at) {
    const TraceEvent& event = trace->events[at];
    const char* wrong = nullptr;
    if (event.action == TraceEvent::Action::allocate) {
      if (live[event.block]) wrong = "allocates a block that is live";
      if (event.bytes == 0) wrong = "allocates 0 bytes";
      live[event.block] = true;
    } else if (event.action == TraceEvent::Action::free) {
      if (!live[event.block]) wrong = "frees a block that is not live";
      live[event.block] = false;
      ++pairs;
    }
    if (wrong != nullptr)
      return Error{Errc::invalid, path + ": event " + std::to_string(at + 1) + " " + wrong};
  }
  if (pairs == 0)
    return Error{Errc::invalid, path + ": no allocation in it is freed; there is nothing to replay"};
  std::string name = std::filesystem::path(path).filename().string();
  return NamedTrace{name.substr(0, name.find('.')), path, false, *std::move(trace)};
}

}  // namespace apportion::bench
