#include "cli/table.hpp"

#include <algorithm>
#include <array>
#include <cstdio>

#include "shm/result.hpp"

namespace apportion {
namespace {

// Characters, not bytes: user and program names may be UTF-8.
std::size_t width_of(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

}  // namespace

Table::Table(std::vector<std::string> headings) : headings_(std::move(headings)) {
  for (std::string& heading : headings_) {
    right_.push_back(!heading.empty() && heading.front() == '>');
    if (right_.back()) heading.erase(0, 1);
  }
}

void Table::row(std::vector<std::string> cells) {
  APPORTION_CHECK(cells.size() == headings_.size());
  rows_.push_back(std::move(cells));
}

std::string Table::text() const {
  std::vector<std::size_t> widths;
  for (const std::string& heading : headings_)
    widths.push_back(width_of(heading));
  for (const auto& row : rows_)
    for (std::size_t i = 0; i < row.size(); ++i)
      widths[i] = std::max(widths[i], width_of(row[i]));
  std::string out;
  const auto append = [&](const std::vector<std::string>& row) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string pad(widths[i] - width_of(row[i]), ' ');
      if (i > 0) line += "  ";
      line += right_[i] ? pad + row[i] : row[i] + pad;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  };
  append(headings_);
  for (const auto& row : rows_)
    append(row);
  return out;
}

std::string gib(std::uint64_t bytes) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.2f", static_cast<double>(bytes) / (1ULL << 30));
  return text.data();
}

}  // namespace apportion
