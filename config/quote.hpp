// Text from a file, a command line or a peer, made fit to stand in a one-line message.
#pragma once

#include <string>
#include <string_view>

namespace apportion {

// In double quotes, at most 64 bytes of it; anything but printable ASCII becomes \xNN, so that a config file
// cannot forge a log line or move the terminal's cursor.
[[nodiscard]] std::string quoted(std::string_view text);

// The same without quotes and without a bound.
[[nodiscard]] std::string printable(std::string_view text);

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
