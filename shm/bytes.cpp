#include "shm/bytes.hpp"

#include <array>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>

namespace apportion {

void bytes_wrapped(const char* operation, std::uint64_t left, std::uint64_t right) noexcept {
  std::fprintf(stderr, "apportion: broken invariant: %" PRIu64 " %s %" PRIu64 " bytes does not fit\n", left,
               operation, right);
  std::abort();
}

std::string to_text(Bytes bytes) {
  struct Unit {
    std::uint64_t size;
    const char* name;
  };
  constexpr std::array<Unit, 4> kUnits{
      {{1ULL << 40, "TiB"}, {1ULL << 30, "GiB"}, {1ULL << 20, "MiB"}, {1ULL << 10, "KiB"}}};
  for (const Unit& unit : kUnits) {
    if (bytes.value < unit.size) continue;
    std::array<char, 48> text{};
    std::snprintf(text.data(), text.size(), "%.2f",
                  static_cast<double>(bytes.value) / static_cast<double>(unit.size));
    std::string number = text.data();
    while (number.back() == '0')
      number.pop_back();
    if (number.back() == '.') number.pop_back();
    return number + " " + unit.name;
  }
  return std::to_string(bytes.value) + " B";
}

}  // namespace apportion
