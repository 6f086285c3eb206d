// What somebody may have meant by a word that is not known: for keys and tables that are misspelt.
#pragma once

#include <string>
#include <string_view>

namespace apportion {

// The candidate nearest to `word` by edit distance, or "" where none is near enough to be a slip of the pen.
template <typename Range>
[[nodiscard]] std::string nearest(std::string_view word, const Range& candidates);

// Insertions, deletions, replacements and swaps of neighbours that lead from a to b.
[[nodiscard]] std::size_t edit_distance(std::string_view a, std::string_view b);

template <typename Range>
std::string nearest(std::string_view word, const Range& candidates) {
  std::string best;
  std::size_t best_distance = word.size() < 4 ? 2 : word.size() / 3 + 1;
  for (std::string_view candidate : candidates) {
    const std::size_t distance = edit_distance(word, candidate);
    if (distance >= best_distance) continue;
    best_distance = distance;
    best = candidate;
  }
  return best;
}

}  // namespace apportion
