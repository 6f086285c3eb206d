#include "broker/device_lock.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/catch.hpp"

using namespace apportion;

namespace {

std::string test_uuid() {
  return "GPU-test-" + std::to_string(::getpid());
}

}  // namespace

TEST_CASE("F20: device lock: the second is told who is first, and the lock goes with its last descriptor") {
  Result<Fd> first = lock_device(test_uuid());
  REQUIRE(first.ok());
  const Fd kept(::dup(first->get()));
  const Result<Fd> second = lock_device(test_uuid());
  REQUIRE_FALSE(second.ok());
  CHECK(second.error().code == Errc::busy);
  CHECK(second.error().message.find("pid " + std::to_string(::getpid()) + " of uid ") != std::string::npos);
  first->reset();
  CHECK_FALSE(lock_device(test_uuid()).ok());  // the keeper's copy holds it
}

TEST_CASE("F20: device lock: free again once all copies are closed") {
  { REQUIRE(lock_device(test_uuid()).ok()); }
  CHECK(lock_device(test_uuid()).ok());
  CHECK(lock_device("GPU-" + std::string(200, 'x')).error().code == Errc::invalid);
}

TEST_CASE("F20: device lock: a broker that took the lock over is the one that is named") {
  const std::string uuid = test_uuid();
  const Result<Fd> lock = lock_device(uuid);
  REQUIRE(lock.ok());
  const pid_t child = ::fork();
  if (child == 0) {
    const bool owned = own_lock(*lock).ok();
    const Result<Fd> second = lock_device(uuid);
    const std::string name = "pid " + std::to_string(::getpid()) + " of uid ";
    ::_exit(owned && !second.ok() && second.error().message.find(name) != std::string::npos ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}
