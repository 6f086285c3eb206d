#include "bench/report.hpp"

#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/catch.hpp"

using namespace apportion::bench;

TEST_CASE("quartiles are interpolated between the sorted values, whatever their order") {
  const Spread spread = spread_of({4, 1, 3, 2});
  CHECK(spread.q25 == 1.75);
  CHECK(spread.median == 2.5);
  CHECK(spread.q75 == 3.25);
  const Spread one = spread_of({7});
  CHECK(one.q25 == 7);
  CHECK(one.median == 7);
  CHECK(one.q75 == 7);
}

TEST_CASE("a ratio is the median of the rounds' ratios, not the ratio of the medians") {
  // A machine that slows down three times over in the middle of the run.
  const Spread ratio = ratio_of({10, 30, 100}, {10, 20, 40});
  CHECK(ratio.median == 1.5);
  CHECK(ratio.q25 == 1.25);
  CHECK(ratio.q75 == 2);
}

TEST_CASE("a figure above what is allowed is OVER, one whose quartiles are 1.25 apart is NOISY") {
  CHECK(judge({1.0, 0.9, 1.1}, 1.0) == Verdict::ok);
  CHECK(judge({1.01, 0.9, 1.1}, 1.0) == Verdict::over);
  CHECK(judge({1.0, 0.8, 1.0}, 2.0) == Verdict::ok);
  CHECK(judge({1.0, 0.8, 1.01}, 2.0) == Verdict::noisy);
  CHECK(judge({3.0, 0.8, 5.0}, 2.0) == Verdict::noisy);
  CHECK(judge({3.0, 2.1, 5.0}, 2.0) == Verdict::over);  // however noisy
  CHECK(judge({0, 0, 0}, 0) == Verdict::ok);
  CHECK(judge({1, 1, 1}, 0) == Verdict::over);
}

TEST_CASE("the JSON has every figure with its verdict and what it was made of") {
  Report report;
  report.add_timed("A1", "dl", "pair / Ref8", 1.15, {30, 20}, {10, 10}, "ns");
  report.add_count("A8", "dl", "driver calls", 0, {{"pairs", 1e6}});
  report.plain.push_back({"info", "apportion_get_info", 140.5, "ns", "no system call"});
  const auto json = nlohmann::json::parse(to_json(report, {{"cores", "2"}}));
  const auto& timed = json["gates"][0];
  CHECK(timed["id"] == "A1");
  CHECK(timed["trace"] == "dl");
  CHECK(timed["what"] == "pair / Ref8");
  CHECK(timed["ratio"] == 2.5);
  CHECK(timed["q25"] == 2.25);
  CHECK(timed["q75"] == 2.75);
  CHECK(timed["allowed"] == 1.15);
  CHECK(timed["verdict"] == "OVER");
  CHECK(timed["ours_ns"] == 25);
  CHECK(timed["peer_ns"] == 10);
  CHECK(json["gates"][1]["verdict"] == "ok");
  CHECK(json["gates"][1]["pairs"] == 1e6);
  CHECK(json["figures"][0]["value"] == 140.5);
  CHECK(json["host"]["cores"] == "2");
}

TEST_CASE("only a count that must be 0 fails a run that is not strict") {
  Report report;
  report.add_timed("A1", "dl", "pair / Ref8", 1.15, {30}, {10}, "ns");
  report.add_exact("M1", "dl", "mapped / live peak", 1.02, 1.03);
  CHECK(report.any_over());
  CHECK(!report.any_count_over());
  report.add_exact("M7", "dl", "replays that failed", 0, 1);
  CHECK(!report.any_count_over());
  report.add_count("A8", "dl", "driver calls", 1);
  CHECK(report.any_count_over());
}

TEST_CASE("a table line says gate, trace, ratio, what is allowed, the verdict and the absolute times") {
  Report report;
  report.add_timed("A1", "dl-fixed", "pair / Ref8", 1.15, {20}, {10}, "ns");
  std::ostringstream out;
  print_gate(out, report.gates[0]);
  std::istringstream words(out.str());
  const std::vector<std::string> seen{std::istream_iterator<std::string>(words), {}};
  CHECK(seen == std::vector<std::string>{"A1", "dl-fixed", "pair", "/", "Ref8", "2", "2", "2", "1.15", "OVER",
                                         "ours_ns=20", "peer_ns=10"});
}
