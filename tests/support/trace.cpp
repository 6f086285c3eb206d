#include "tests/support/trace.hpp"

#include <array>
#include <charconv>
#include <fstream>
#include <sstream>
#include <string_view>
#include <unordered_map>

namespace apportion::testing {

namespace {

bool number(std::string_view text, std::uint64_t& value) {
  int base = 10;
  if (text.substr(0, 2) == "0x") {
    text.remove_prefix(2);
    base = 16;
  }
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return error == std::errc{} && end == text.data() + text.size();
}

bool action(std::string_view text, TraceEvent::Action& value) {
  if (text == "allocate") value = TraceEvent::Action::allocate;
  if (text == "free") value = TraceEvent::Action::free;
  if (text == "allocate failure") value = TraceEvent::Action::failure;
  return value != TraceEvent::Action::marker;
}

}  // namespace

Result<Trace> parse_trace(const std::string& text, const std::string& name) {
  Trace trace;
  std::unordered_map<std::uint64_t, std::uint32_t> names;
  std::istringstream lines(text);
  std::string line;
  for (int count = 1; std::getline(lines, line); ++count) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty() || line.rfind("Thread,", 0) == 0) continue;
    TraceEvent event;
    if (line.front() == '#') {
      trace.events.push_back(event);
      continue;
    }
    std::array<std::string_view, 6> fields;
    std::string_view rest = line;
    std::size_t found = 0;
    for (; found < fields.size(); ++found) {
      const std::size_t comma = rest.find(',');
      fields[found] = rest.substr(0, comma);
      if (comma == std::string_view::npos) break;
      rest.remove_prefix(comma + 1);
    }
    std::uint64_t thread = 0;
    std::uint64_t pointer = 0;
    if (found != 5 || !number(fields[0], thread) || !action(fields[2], event.action) ||
        !number(fields[3], pointer) || !number(fields[4], event.bytes) || !number(fields[5], event.stream)) {
      return Error{Errc::invalid, name + ":" + std::to_string(count) + ": not a line of an RMM log: " + line};
    }
    event.thread = static_cast<std::uint32_t>(thread);
    event.block = names.try_emplace(pointer, static_cast<std::uint32_t>(names.size())).first->second;
    trace.events.push_back(event);
  }
  trace.blocks = static_cast<std::uint32_t>(names.size());
  return trace;
}

Result<Trace> read_trace(const std::string& path) {
  const std::ifstream file(path);
  if (!file) return Error{Errc::not_found, "no trace at " + path};
  std::ostringstream text;
  text << file.rdbuf();
  return parse_trace(text.str(), path);
}

}  // namespace apportion::testing
