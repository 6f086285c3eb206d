#include "libclient/short_lock.hpp"

#include <csignal>
#include <thread>
#include <vector>

#include "tests/support/catch.hpp"

using namespace apportion;

namespace {
ShortLock* handler_lock = nullptr;
volatile std::sig_atomic_t handler_got = -1;
void handler(int) {
  handler_got = handler_lock->lock() ? 1 : 0;
}
}  // namespace

TEST_CASE("the short lock excludes threads from each other") {
  ShortLock lock;
  std::uint64_t count = 0;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      for (int step = 0; step < 20000; ++step) {
        const ShortGuard guard(lock);
        if (guard.held()) ++count;
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  CHECK(count == 80000);
}

TEST_CASE("F48: a signal handler that interrupts the holder is told so instead of waiting for ever") {
  ShortLock lock;
  handler_lock = &lock;
  struct sigaction action = {};
  struct sigaction old = {};
  action.sa_handler = handler;
  REQUIRE(::sigaction(SIGUSR1, &action, &old) == 0);
  {
    const ShortGuard guard(lock);
    REQUIRE(guard.held());
    ::raise(SIGUSR1);
    CHECK(handler_got == 0);
    CHECK(lock.held_by_this_thread());
  }
  CHECK(!lock.held_by_this_thread());
  ::raise(SIGUSR1);
  CHECK(handler_got == 1);
  lock.unlock();
  ::sigaction(SIGUSR1, &old, nullptr);
}
