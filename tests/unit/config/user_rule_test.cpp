#include "config/user_rule.hpp"

#include <unistd.h>

#include <array>

#include "tests/unit/config/support.hpp"

using namespace apportion;
using namespace apportion::testing;

namespace {

UserRule rule(const char* text) {
  Result<UserRule> parsed = parse_user_rule(text, test_names());
  if (!parsed) FAIL(parsed.error().message);
  return *parsed;
}

}  // namespace

TEST_CASE("names, uids, groups and gids become numbers") {
  CHECK(rule("alice") == UserRule{"alice", false, 1001});
  CHECK(rule("1000") == UserRule{"1000", false, 1000});
  CHECK(rule("0") == UserRule{"0", false, 0});
  CHECK(rule("@ml") == UserRule{"@ml", true, 2001});
  CHECK(rule("@44") == UserRule{"@44", true, 44});
}

TEST_CASE("unknown names and impossible ids are refused with their text") {
  for (const char* text :
       {"bob", "@alice", "ml", "", "@", "4294967295", "@4294967295", "99999999999", "-1", "alice "}) {
    INFO(text);
    const Result<UserRule> parsed = parse_user_rule(text, test_names());
    REQUIRE_FALSE(parsed.ok());
    CHECK(parsed.error().message.find("\"" + std::string{text} + "\"") == 0);
  }
  CHECK_FALSE(parse_user_rule(std::string_view{"alice\0root", 10}, test_names()).ok());
}

TEST_CASE("the system's own databases resolve root and refuse a made-up name") {
  const Names names = system_names();
  CHECK(names.uid_of("root") == 0U);
  CHECK(names.gid_of("root") == 0U);
  CHECK(names.uid_of("no-such-user-of-this-test") == std::nullopt);
  CHECK(names.gid_of("no-such-group-of-this-test") == std::nullopt);
}

TEST_CASE("who may join: a uid rule, a gid rule, no rule, and never by being root") {
  const std::array<std::uint32_t, 2> ml_gids{100, 2001};
  const std::array<std::uint32_t, 1> other_gids{1001};  // a gid equal to alice's uid proves nothing
  const std::vector<UserRule> rules{rule("alice"), rule("@ml")};
  CHECK(may_join(rules, 1001, other_gids));
  CHECK(may_join(rules, 5000, ml_gids));
  CHECK_FALSE(may_join(rules, 5000, other_gids));
  CHECK_FALSE(may_join(rules, 2001, other_gids));  // a uid equal to ml's gid proves nothing either
  CHECK_FALSE(may_join(rules, 0, other_gids));
  CHECK_FALSE(may_join(rules, 5000, {}));
  CHECK(may_join({}, 5000, other_gids));
}
