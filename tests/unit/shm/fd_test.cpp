#include "shm/fd.hpp"

#include "support.hpp"
#include "tests/support/catch.hpp"

using namespace apportion;

TEST_CASE("an fd is closed once, by its last owner") {
  const std::size_t before = testing::open_fds();
  {
    Fd first(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    REQUIRE(first.valid());
    Fd second(std::move(first));
    CHECK_FALSE(first.valid());
    Fd third;
    third = std::move(second);
    CHECK(testing::open_fds() == before + 1);
    third = Fd(::open("/dev/zero", O_RDONLY | O_CLOEXEC));  // the former one is closed
    CHECK(testing::open_fds() == before + 1);
  }
  CHECK(testing::open_fds() == before);
}

TEST_CASE("a released fd stays open and is the caller's") {
  Fd owned(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const int number = owned.release();
  CHECK_FALSE(owned.valid());
  CHECK(::close(number) == 0);
}
