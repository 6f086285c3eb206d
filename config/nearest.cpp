#include "config/nearest.hpp"

#include <algorithm>
#include <vector>

namespace apportion {
namespace {
constexpr std::size_t kLongestWord = 64;
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  // Long words are never near misses, and the table is quadratic.
  if (a.size() > kLongestWord || b.size() > kLongestWord) return std::max(a.size(), b.size());
  std::vector<std::vector<std::size_t>> d(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = i + j;
        continue;
      }
      d[i][j] =
          std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

}  // namespace apportion
