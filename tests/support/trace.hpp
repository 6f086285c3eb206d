// Allocation traces in the CSV form that RMM logs: Thread,Time,Action,Pointer,Size,Stream.
//
// Action is allocate, free or "allocate failure"; Pointer is an identity, not an address; lines that begin
// with # are markers. Pointers are renamed 0, 1, 2 ... in order of first use, so that a replay can index an
// array.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shm/result.hpp"

namespace apportion::testing {

struct TraceEvent {
  enum class Action : std::uint8_t { allocate, free, failure, marker };
  Action action = Action::marker;
  std::uint32_t thread = 0;
  std::uint32_t block = 0;  // which block, below Trace::blocks
  std::uint64_t bytes = 0;
  std::uint64_t stream = 0;
};

struct Trace {
  std::vector<TraceEvent> events;
  std::uint32_t blocks = 0;
};

// Errors: not_found, and invalid with the line's number and text.
[[nodiscard]] Result<Trace> read_trace(const std::string& path);
[[nodiscard]] Result<Trace> parse_trace(const std::string& text, const std::string& name);

}  // namespace apportion::testing
