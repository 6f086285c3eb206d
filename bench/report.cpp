#include "bench/report.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <ostream>

namespace apportion::bench {
namespace {

std::string number(double value) {
  std::array<char, 32> text{};
  const bool whole = value == std::floor(value);
  std::snprintf(text.data(), text.size(),
                whole || value >= 1000 ? "%.0f"
                : value >= 100         ? "%.1f"
                                       : "%.4g",
                value);
  return text.data();
}

}  // namespace

void Report::add_timed(const std::string& id, const std::string& trace, const std::string& what,
                       double allowed, const std::vector<double>& ours, const std::vector<double>& peers,
                       const std::string& unit) {
  gates.push_back({id,
                   trace,
                   what,
                   ratio_of(ours, peers),
                   allowed,
                   false,
                   false,
                   {{"ours_" + unit, spread_of(ours).median}, {"peer_" + unit, spread_of(peers).median}}});
}

void Report::add_exact(const std::string& id, const std::string& trace, const std::string& what,
                       double allowed, double value, std::vector<std::pair<std::string, double>> absolute) {
  gates.push_back({id, trace, what, {value, value, value}, allowed, true, false, std::move(absolute)});
}

void Report::add_count(const std::string& id, const std::string& trace, const std::string& what, double value,
                       std::vector<std::pair<std::string, double>> absolute) {
  gates.push_back({id, trace, what, {value, value, value}, 0, true, true, std::move(absolute)});
}

bool Report::any_count_over() const {
  return std::any_of(gates.begin(), gates.end(), [](const GateFigure& figure) {
    return figure.must && figure.verdict() == Verdict::over;
  });
}

bool Report::any_over() const {
  return std::any_of(gates.begin(), gates.end(),
                     [](const GateFigure& figure) { return figure.verdict() == Verdict::over; });
}

void print_head(std::ostream& out) {
  std::array<char, 256> line{};
  std::snprintf(line.data(), line.size(), "%-5s %-14s %-39s%9s%9s%9s%9s  %-7s %s\n", "gate", "trace", "what",
                "ratio", "q25", "q75", "allowed", "verdict", "absolute");
  out << line.data();
}

void print_gate(std::ostream& out, const GateFigure& figure) {
  std::array<char, 256> line{};
  std::snprintf(line.data(), line.size(), "%-5s %-14s %-39s%9s%9s%9s%9s  %-7s", figure.id.c_str(),
                figure.trace.c_str(), figure.what.c_str(), number(figure.ratio.median).c_str(),
                number(figure.ratio.q25).c_str(), number(figure.ratio.q75).c_str(),
                number(figure.allowed).c_str(), to_text(figure.verdict()).c_str());
  out << line.data();
  for (const auto& [name, value] : figure.absolute)
    out << ' ' << name << '=' << number(value);
  if (!figure.note.empty()) out << "  (" << figure.note << ')';
  out << std::endl;
}

void print_plain(std::ostream& out, const PlainFigure& figure) {
  std::array<char, 256> line{};
  std::snprintf(line.data(), line.size(), "%-20s %-39s%9s %s", figure.id.c_str(), figure.what.c_str(),
                number(figure.value).c_str(), figure.unit.c_str());
  out << line.data() << (figure.target.empty() ? "" : "  (" + figure.target + ")") << std::endl;
}

std::string to_json(const Report& report, const std::vector<std::pair<std::string, std::string>>& host) {
  nlohmann::ordered_json out = {{"gates", nlohmann::ordered_json::array()},
                                {"figures", nlohmann::ordered_json::array()},
                                {"host", nlohmann::ordered_json::object()}};
  for (const GateFigure& figure : report.gates) {
    nlohmann::ordered_json entry = {{"id", figure.id},           {"trace", figure.trace},
                                    {"what", figure.what},       {"ratio", figure.ratio.median},
                                    {"q25", figure.ratio.q25},   {"q75", figure.ratio.q75},
                                    {"allowed", figure.allowed}, {"verdict", to_text(figure.verdict())},
                                    {"exact", figure.exact}};
    for (const auto& [name, value] : figure.absolute)
      entry[name] = value;
    if (!figure.note.empty()) entry["note"] = figure.note;
    out["gates"].push_back(std::move(entry));
  }
  for (const PlainFigure& figure : report.plain) {
    out["figures"].push_back({{"id", figure.id},
                              {"what", figure.what},
                              {"value", figure.value},
                              {"unit", figure.unit},
                              {"target", figure.target}});
  }
  for (const auto& [name, value] : host)
    out["host"][name] = value;
  return out.dump(1) + "\n";
}

}  // namespace apportion::bench
