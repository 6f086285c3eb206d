#include "shm/result.hpp"

#include <cerrno>
#include <memory>

#include "support.hpp"
#include "tests/support/catch.hpp"

using namespace apportion;

TEST_CASE("a result holds a value or an error, and moves what cannot be copied") {
  Result<std::unique_ptr<int>> result = std::make_unique<int>(7);
  REQUIRE(result.ok());
  const std::unique_ptr<int> moved = *std::move(result);
  CHECK(*moved == 7);
  const Result<int> failed = Error{Errc::quota, "no"};
  CHECK_FALSE(failed.ok());
  CHECK(failed.error().code == Errc::quota);
}

TEST_CASE("asking a result for what it does not hold ends the process") {
  CHECK(testing::run_child([] {
          ::close(2);
          const Result<int> failed = Error{Errc::quota, "no"};
          return failed.value();
        }) < 0);
}

TEST_CASE("a system error says what failed and why") {
  const Error error = system_error("cannot open /x", EACCES);
  CHECK(error.code == Errc::system);
  CHECK(error.message == "cannot open /x: Permission denied");
}

TEST_CASE("error codes keep the numbers they have on the wire, and each has a word") {
  CHECK(static_cast<int>(Errc::invalid) == 0);
  CHECK(static_cast<int>(Errc::quota) == 3);
  CHECK(static_cast<int>(Errc::timed_out) == 11);
  for (int code = 0; code <= static_cast<int>(Errc::timed_out); ++code) {
    CHECK(std::string(to_text(static_cast<Errc>(code))) != "unknown");
  }
}
