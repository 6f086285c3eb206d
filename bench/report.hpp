// What a run of the bench found: figures that gates judge, and figures that are only printed.
//
// Promises: one table line and one JSON entry per figure, in the order they were found. Never: measures.
#pragma once

#include <iosfwd>
#include <string>
#include <utility>
#include <vector>

#include "bench/statistics.hpp"

namespace apportion::bench {

// One line of a gate of docs/bench.md. An exact figure (a count, a ratio of bytes) has no spread.
struct GateFigure {
  std::string id;     // "A1"
  std::string trace;  // "dl-fixed"; "-" where none is replayed
  std::string what;   // "pair / Ref8"
  Spread ratio;
  double allowed = 0;
  bool exact = false;
  bool must = false;  // a promise that holds on any machine: the run fails where it is over
  // What the ratio was made of, beside it: {"ours_ns", 71.2}. Medians; keys carry their unit.
  std::vector<std::pair<std::string, double>> absolute{};

  std::string note{};  // for a person: why it is over

  [[nodiscard]] Verdict verdict() const { return judge(ratio, allowed); }
};

// A figure without a gate.
struct PlainFigure {
  std::string id;    // "info"
  std::string what;  // "apportion_get_info"
  double value = 0;
  std::string unit;
  std::string target{};  // for a person: "at most 30 MiB"; empty: none
};

struct Report {
  std::vector<GateFigure> gates;
  std::vector<PlainFigure> plain;

  // A timed figure: per-round values of ours and of the peer, in `unit`.
  void add_timed(const std::string& id, const std::string& trace, const std::string& what, double allowed,
                 const std::vector<double>& ours, const std::vector<double>& peers, const std::string& unit);
  // What must be 0.
  void add_count(const std::string& id, const std::string& trace, const std::string& what, double value,
                 std::vector<std::pair<std::string, double>> absolute = {});
  // An exact figure that may be over for now.
  void add_exact(const std::string& id, const std::string& trace, const std::string& what, double allowed,
                 double value, std::vector<std::pair<std::string, double>> absolute = {});

  // Something that must be 0 is not.
  [[nodiscard]] bool any_count_over() const;
  [[nodiscard]] bool any_over() const;
};

// A figure as its table line, so that a long run can be followed. Columns: see print_head.
void print_head(std::ostream& out);
void print_gate(std::ostream& out, const GateFigure& figure);
void print_plain(std::ostream& out, const PlainFigure& figure);

// {"gates":[{"id","trace","what","ratio","q25","q75","allowed","verdict","exact",...}],"figures":[...],
// "host":{...}}. `host`: name and value, as written. Ends with a newline.
[[nodiscard]] std::string to_json(const Report& report,
                                  const std::vector<std::pair<std::string, std::string>>& host);

}  // namespace apportion::bench
