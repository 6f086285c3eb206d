// Median and quartiles of a few rounds, and what they say against what is allowed.
//
// A timed figure is the median of the per-round ratios of ours to a peer measured in the same round: absolute
// times move by 40 % from run to run on shared machines, such ratios by 5 to 15 %. Pure functions.
#pragma once

#include <string>
#include <vector>

namespace apportion::bench {

struct Spread {
  double median = 0;
  double q25 = 0;
  double q75 = 0;
};

// The value below which `part` (0..1) of the sorted values lie, interpolated between neighbours. Not empty.
[[nodiscard]] double quantile(const std::vector<double>& sorted, double part);
// In any order; not empty.
[[nodiscard]] Spread spread_of(std::vector<double> values);
// ours[i] / peers[i]: the two were measured one after the other. As many of both, peers above 0.
[[nodiscard]] Spread ratio_of(const std::vector<double>& ours, const std::vector<double>& peers);

enum class Verdict {
  ok,
  over,   // more than allowed
  noisy,  // the quartiles are so far apart that neither can be said
};
inline constexpr double kNoisy = 1.25;  // q75 / q25 above this

[[nodiscard]] Verdict judge(const Spread& ratio, double allowed);
// "ok", "OVER", "NOISY".
[[nodiscard]] std::string to_text(Verdict verdict);

}  // namespace apportion::bench
