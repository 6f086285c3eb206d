// A table for a terminal: columns as wide as their widest cell, numbers to the right.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace apportion {

class Table {
 public:
  // A heading that starts with '>' aligns its column to the right.
  explicit Table(std::vector<std::string> headings);
  void row(std::vector<std::string> cells);  // as many as headings
  [[nodiscard]] bool empty() const { return rows_.empty(); }
  // Lines end with '\n' and have no trailing blanks.
  [[nodiscard]] std::string text() const;

 private:
  std::vector<std::string> headings_;
  std::vector<bool> right_;
  std::vector<std::vector<std::string>> rows_;
};

// "18.25": GiB with two decimals, for columns.
[[nodiscard]] std::string gib(std::uint64_t bytes);

}  // namespace apportion
