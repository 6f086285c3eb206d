#include "config/plain_text.hpp"

#include <cstddef>

namespace apportion {
namespace {

// How many of `quote` stand at `at`, at most `most`.
std::size_t quotes_at(std::string_view text, std::size_t at, char quote, std::size_t most) {
  std::size_t count = 0;
  while (count < most && at + count < text.size() && text[at + count] == quote)
    ++count;
  return count;
}

// The end of the string that opens at `at`: of TOML's four kinds, by quote and by one or three of it. A
// one-line string that is not closed ends before its newline.
std::size_t end_of_string(std::string_view text, std::size_t at) {
  const char quote = text[at];
  const bool has_escapes = quote == '"';
  const bool is_long = quotes_at(text, at, quote, 3) == 3;
  at += is_long ? 3 : 1;
  while (at < text.size()) {
    if (text[at] == '\n' && !is_long) return at;
    if (text[at] == '\\' && has_escapes) {
      at += at + 1 < text.size() && text[at + 1] != '\n' ? 2 : 1;
    } else if (text[at] != quote) {
      ++at;
    } else if (!is_long) {
      return at + 1;
    } else if (quotes_at(text, at, quote, 3) == 3) {
      return at + quotes_at(text, at, quote, 5);  // up to two quotes may stand before the closing three
    } else {
      ++at;
    }
  }
  return text.size();
}

bool is_plain(char c) {
  return static_cast<unsigned char>(c) < 0x80;
}

}  // namespace

std::variant<std::string, NotPlain> plain_text(std::string_view text) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  std::string plain{text};
  int line = 1;
  std::size_t at = 0;
  while (at < text.size()) {
    std::size_t end = at + 1;
    const bool is_comment = text[at] == '#';
    if (is_comment) {
      end = text.find('\n', at);
      if (end == std::string_view::npos) end = text.size();
    } else if (text[at] == '"' || text[at] == '\'') {
      end = end_of_string(text, at);
    }
    for (; at < end; ++at) {
      if (text[at] == '\n') ++line;
      if (is_plain(text[at])) continue;
      if (!is_comment) return NotPlain{line};
      plain[at] = '?';
    }
  }
  return plain;
}

}  // namespace apportion
