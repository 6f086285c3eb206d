#include "config/nearest.hpp"

#include <array>
#include <string_view>

#include "tests/support/catch.hpp"

using namespace apportion;

TEST_CASE("the nearest name is offered only where it is near") {
  constexpr std::array<std::string_view, 3> kNames{"guarantee", "limit", "lend"};
  CHECK(nearest("guarante", kNames) == "guarantee");
  CHECK(nearest("limti", kNames) == "limit");
  CHECK(nearest("len", kNames) == "lend");
  CHECK(nearest("colour", kNames).empty());
  CHECK(nearest("x", kNames).empty());
  CHECK(nearest(std::string(100'000, 'g'), kNames).empty());
  CHECK(edit_distance("kitten", "sitting") == 3);
  CHECK(edit_distance("ab", "ba") == 1);
}
