#include "bench/statistics.hpp"

#include <algorithm>
#include <cmath>

#include "shm/result.hpp"

namespace apportion::bench {

double quantile(const std::vector<double>& sorted, double part) {
  APPORTION_CHECK(!sorted.empty() && part >= 0 && part <= 1);
  const double at = part * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  const double share = at - std::floor(at);
  return sorted[below] + (sorted[above] - sorted[below]) * share;
}

Spread spread_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return {quantile(values, 0.5), quantile(values, 0.25), quantile(values, 0.75)};
}

Spread ratio_of(const std::vector<double>& ours, const std::vector<double>& peers) {
  APPORTION_CHECK(!ours.empty() && ours.size() == peers.size());
  std::vector<double> ratios;
  for (std::size_t round = 0; round < ours.size(); ++round) {
    APPORTION_CHECK(peers[round] > 0);
    ratios.push_back(ours[round] / peers[round]);
  }
  return spread_of(std::move(ratios));
}

Verdict judge(const Spread& ratio, double allowed) {
  if (ratio.q25 > allowed) return Verdict::over;  // however noisy: three rounds of four were above it
  if (ratio.q75 > ratio.q25 * kNoisy) return Verdict::noisy;
  return ratio.median > allowed ? Verdict::over : Verdict::ok;
}

std::string to_text(Verdict verdict) {
  switch (verdict) {
    case Verdict::ok:
      return "ok";
    case Verdict::over:
      return "OVER";
    case Verdict::noisy:
      return "NOISY";
  }
  return "unknown";
}

}  // namespace apportion::bench
