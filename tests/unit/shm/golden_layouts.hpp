// Every field of every message and page, for golden_test.cpp. What is not listed here is not pinned.
#pragma once

#include <cstddef>
#include <vector>

namespace apportion::testing {

struct Field {
  const char* name;
  std::size_t offset;
  std::size_t size;
};
struct Layout {
  const char* name;
  std::size_t size;
  std::vector<Field> fields;
};

[[nodiscard]] std::vector<Layout> layouts();

}  // namespace apportion::testing
