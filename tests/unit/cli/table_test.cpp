#include "cli/table.hpp"

#include "tests/support/catch.hpp"

using namespace apportion;

TEST_CASE("table: columns are as wide as their widest cell, and numbers stand to the right") {
  Table table({"name", ">bytes", "what"});
  table.row({"a", "5", "x"});
  table.row({"long name", "12345678", "y"});
  CHECK(table.text() ==
        "name          bytes  what\n"
        "a                 5  x\n"
        "long name  12345678  y\n");
}

TEST_CASE("table: no line ends in blanks, and a table without rows is its headings") {
  Table table({"name", "note"});
  CHECK(table.empty());
  CHECK(table.text() == "name  note\n");
  table.row({"a", ""});
  CHECK_FALSE(table.empty());
  CHECK(table.text() == "name  note\na\n");
}

TEST_CASE("table: a name in UTF-8 takes as many places as it has characters") {
  Table table({"user", ">bytes"});
  table.row({"J\xc3\xb6rg", "1"});
  table.row({"anna", "2"});
  CHECK(table.text() ==
        "user  bytes\n"
        "J\xc3\xb6rg      1\n"
        "anna      2\n");
}

TEST_CASE("table: gib has two decimals") {
  CHECK(gib(0) == "0.00");
  CHECK(gib(584ULL * 32 * 1024 * 1024) == "18.25");
  CHECK(gib(1) == "0.00");
  CHECK(gib(~0ULL) == "17179869184.00");
}
