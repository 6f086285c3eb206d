#include "config/plain_text.hpp"

#include "tests/support/catch.hpp"

using namespace apportion;

namespace {

// The line that is refused, or 0.
int refused_line(std::string_view text) {
  const auto plain = plain_text(text);
  const auto* refused = std::get_if<NotPlain>(&plain);
  return refused != nullptr ? refused->line : 0;
}

}  // namespace

TEST_CASE("comments may hold anything, and reach the parser as plain text with the same lines") {
  CHECK(std::get<std::string>(plain_text("# caf\xc3\xa9\na = 1 # \xff\n")) == "# caf??\na = 1 # ?\n");
  CHECK(std::get<std::string>(plain_text("\xef\xbb\xbf"
                                         "a = 1")) == "a = 1");
  CHECK(std::get<std::string>(plain_text("")).empty());
}

TEST_CASE("outside comments the first line that is not plain is found, whatever stands in strings") {
  CHECK(refused_line("\xc3\xa9 = 1") == 1);
  CHECK(refused_line("# x\na = \"\xc3\xa9\"") == 2);
  CHECK(refused_line("a = \"#\"\xc3\xa9") == 1);
  CHECK(refused_line("a = \"\\\"#\"\xc3\xa9") == 1);
  CHECK(refused_line("a = \"\\\\\" # \xc3\xa9") == 0);
  CHECK(refused_line("a = '\\' # \xc3\xa9") == 0);
  CHECK(refused_line("a = '#'\xc3\xa9") == 1);
  CHECK(refused_line("a = \"\"\"\n# \xc3\xa9\n\"\"\"") == 2);
  CHECK(refused_line("a = '''\n''\n# \xc3\xa9'''") == 3);
  CHECK(refused_line("a = \"\"\"x\"\"\"\"\" # \xc3\xa9") == 0);
  CHECK(refused_line("a = \"\"\"\"\"\" # \xc3\xa9") == 0);
  CHECK(refused_line("a = \"open\n# \xc3\xa9") == 0);
  CHECK(refused_line("a = \"open\\\n# \xc3\xa9") == 0);
}
