// The traces that the gates replay, by name: generated ones, or files of the user's.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/traces/trace_maker.hpp"
#include "shm/result.hpp"

namespace apportion::bench {

struct NamedTrace {
  std::string name;
  std::string parameters;    // of its generator, or the file's path
  bool adversarial = false;  // for gate M3 alone; files are not
  Trace trace;
};

// brief: three of them, so small that all gates are through in seconds.
[[nodiscard]] std::vector<NamedTrace> generated_traces(std::uint64_t seed, bool brief);

// CSV as RMM logs it. Its name is the file's, without what follows the first dot. Errors: those of
// read_trace; invalid for a log that frees what it did not allocate, allocates 0 bytes or what is live, or
// has no pair: with the number of the event.
[[nodiscard]] Result<NamedTrace> trace_of_file(const std::string& path);

}  // namespace apportion::bench
