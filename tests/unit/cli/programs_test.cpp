#include "cli/programs.hpp"

#include <filesystem>

#include "tests/support/catch.hpp"

using namespace apportion;

// This test lies in tests/unit/cli of the build folder, where none of the places of find_program lead
// anywhere.
TEST_CASE("programs: a missing part is told with every path tried") {
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  const Result<std::string> found = find_program(Program::race_worker);
  REQUIRE_FALSE(found.ok());
  CHECK(found.error().code == Errc::not_found);
  const std::string built = (self / "../tests/replay/replay_race_worker").lexically_normal();
  const std::string installed = (self / "../lib/apportion/replay_race_worker").lexically_normal();
  CHECK(found.error().message ==
        "a part of this installation is missing; tried: " + built + ", " + installed);
}

TEST_CASE("programs: every program has a place in a build folder and one in an installation") {
  for (const Program program : {Program::broker, Program::race_worker, Program::simulator_control}) {
    const Result<std::string> found = find_program(program);
    REQUIRE_FALSE(found.ok());
    CHECK(found.error().message.find(", ") != std::string::npos);
  }
}
