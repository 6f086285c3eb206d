#include "bench/system_calls.hpp"

#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <new>

#include "tests/support/catch.hpp"

using apportion::bench::forbid_system_calls;

namespace {

// The number of the call that ended a child which did `work`; -1: none did. The child then ends with 7.
int call_of(bool waits, const std::function<void()>& work, int& status) {
  void* shared =
      ::mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(shared != MAP_FAILED);
  auto& made = *new (shared) std::atomic<int>(-1);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    if (!forbid_system_calls(made, waits)) ::_exit(1);
    work();
    ::syscall(SYS_exit_group, 7);
  }
  int ended = 0;
  REQUIRE(::waitpid(child, &ended, 0) == child);
  REQUIRE(WIFEXITED(ended));
  status = WEXITSTATUS(ended);
  const int number = made;
  ::munmap(shared, sizeof(std::atomic<int>));
  return number;
}

}  // namespace

TEST_CASE("a forbidden system call is named, and nothing is where none was made") {
  int status = 0;
  CHECK(call_of(
            false, [] { ::syscall(SYS_getppid); }, status) == SYS_getppid);
  CHECK(status == 0);
  CHECK(call_of(
            false, [] {}, status) == -1);
  CHECK(status == 7);
}

TEST_CASE("waiting for a lock's holder is a system call for one thread alone, and none for several") {
  int status = 0;
  CHECK(call_of(
            false, [] { ::sched_yield(); }, status) == SYS_sched_yield);
  CHECK(call_of(
            true, [] { ::sched_yield(); }, status) == -1);
  CHECK(status == 7);
}
