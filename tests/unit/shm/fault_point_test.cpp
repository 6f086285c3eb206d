#include "shm/fault_point.hpp"

#include "support.hpp"
#include "tests/support/catch.hpp"

using namespace apportion;
using namespace apportion::testing;

#ifdef APPORTION_FAULT_POINTS

TEST_CASE("a fault point kills at the nth passing, not before") {
  const int code = run_child([] {
    fault::arm("test.here:kill:3");
    APPORTION_FAULT_POINT("test.here");
    APPORTION_FAULT_POINT("test.elsewhere");
    APPORTION_FAULT_POINT("test.here");
    if (fault::passed("test.here") != 2) return 1;
    APPORTION_FAULT_POINT("test.here");
    return 2;
  });
  CHECK(code == -SIGKILL);
}

TEST_CASE("a fault point aborts, or stops and goes on when told") {
  CHECK(run_child([] {
          ::close(2);  // a sanitizer's report of the abort is not this test's business
          fault::arm("other:kill,test.here:abort");
          APPORTION_FAULT_POINT("test.here");
          return 1;
        }) != 1);
  const pid_t pid = start_child([] {
    fault::arm("test.here:stop");
    APPORTION_FAULT_POINT("test.here");
    return 7;
  });
  int status = 0;
  REQUIRE(::waitpid(pid, &status, WUNTRACED) == pid);
  CHECK(WIFSTOPPED(status));
  ::kill(pid, SIGCONT);
  CHECK(wait_for_child(pid) == 7);
}

TEST_CASE("an unarmed point does nothing, and an unreadable spec ends the process") {
  APPORTION_FAULT_POINT("test.here");
  for (const char* spec : {"here", "here:explode", ":kill", "here:kill:0", "here:kill:x"}) {
    CAPTURE(spec);
    CHECK(run_child([spec] {
            ::close(2);
            fault::arm(spec);
            return 0;
          }) == 2);
  }
}

#endif
