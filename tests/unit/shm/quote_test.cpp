#include "shm/quote.hpp"

#include <string>

#include "tests/support/catch.hpp"

using namespace apportion;

TEST_CASE("quoted text cannot leave its line, reach the terminal or grow without bound") {
  CHECK(in_quotes("5O%") == "\"5O%\"");
  CHECK(in_quotes("a\nb\x1b[2J") == "\"a\\x0ab\\x1b[2J\"");
  CHECK(in_quotes("\xc3\xa9") == "\"\\xc3\\xa9\"");
  CHECK(in_quotes(std::string(100, 'x')) == "\"" + std::string(64, 'x') + "...\"");
}
