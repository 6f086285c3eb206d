#include "shm/quote.hpp"

#include <array>
#include <cstdio>

namespace apportion {
namespace {
constexpr std::size_t kMaxQuoted = 64;
}

std::string printable(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f) {
      out += c;
      continue;
    }
    std::array<char, 8> escaped{};
    std::snprintf(escaped.data(), escaped.size(), "\\x%02x", byte);
    out += escaped.data();
  }
  return out;
}

std::string in_quotes(std::string_view text) {
  return "\"" + printable(text.substr(0, kMaxQuoted)) + (text.size() > kMaxQuoted ? "...\"" : "\"");
}

}  // namespace apportion
