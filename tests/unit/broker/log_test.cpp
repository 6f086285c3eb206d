#include "broker/log.hpp"

#include "tests/support/catch.hpp"

using namespace apportion;

namespace {

std::string line_of(std::string_view event, std::initializer_list<log::Field> fields) {
  return log::line(event, {fields.begin(), fields.size()});
}

}  // namespace

TEST_CASE("log: a line is key=value, with quotes only where they are needed") {
  CHECK(line_of("lost", {{"job", "trainer"}, {"why", "two words"}, {"empty", ""}}) ==
        "event=lost job=trainer why=\"two words\" empty=\"\"");
}

TEST_CASE("F24: log: nothing in a value forges a line or a field, or drives a terminal") {
  CHECK(line_of("refused", {{"job", "a\nevent=granted"}}) == "event=refused job=\"a?event=granted\"");
  CHECK(line_of("refused", {{"job", "a\" uid=\"0"}}) == "event=refused job=\"a\\\" uid=\\\"0\"");
  CHECK(line_of("refused", {{"job", "\x1b[2J\x7f\r\t"}}) == "event=refused job=\"?[2J???\"");
  CHECK(line_of("refused", {{"job",
                             "\xc2\x9b"
                             "2J"}}) == "event=refused job=\"?2J\"");
  CHECK(line_of("refused", {{"job", "a=b\\"}}) == "event=refused job=\"a=b\\\\\"");
  CHECK(line_of("x", {{"name", "K\xc3\xa4se"}}) == "event=x name=K\xc3\xa4se");
}

TEST_CASE("log: a flood is cut to so many lines a second, and what was left out is counted") {
  log::Throttle throttle;
  for (std::uint32_t i = 0; i < log::kMostASecond; ++i)
    CHECK(throttle.line_at(7).write);
  for (int i = 0; i < 5; ++i)
    CHECK_FALSE(throttle.line_at(7).write);
  const log::Throttle::Verdict next = throttle.line_at(8);
  CHECK(next.write);
  CHECK(next.left_out == 5);
  CHECK(throttle.line_at(8).left_out == 0);
}
