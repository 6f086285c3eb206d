#include "broker/server_loop.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <sys/wait.h>

#include <csignal>

#include "broker/watch.hpp"
#include "shm/peer.hpp"
#include "tests/unit/broker/shell_support.hpp"

using namespace apportion;
using namespace apportion::testing;

namespace {

channel::Pair make_pair() {
  Result<channel::Pair> pair = channel::make_pair();
  REQUIRE(pair.ok());
  return *std::move(pair);
}

void poke(const Fd& socket) {
  REQUIRE(::send(socket.get(), "x", 1, MSG_DONTWAIT) == 1);
}

}  // namespace

TEST_CASE("loop: readiness is a level: what is left unread calls again") {
  Loop loop;
  const channel::Pair pair = make_pair();
  int calls = 0;
  const auto watch = loop.on_readable(pair.first.get(), [&] { ++calls; });
  poke(pair.second);
  CHECK(turn_until(loop, [&] { return calls == 3; }));
}

TEST_CASE("loop: a watch may end in its own callback, and never calls again") {
  Loop loop;
  const channel::Pair pair = make_pair();
  int calls = 0;
  std::unique_ptr<Loop::Watch> watch;
  watch = loop.on_readable(pair.first.get(), [&] {
    ++calls;
    watch.reset();
  });
  poke(pair.second);
  CHECK(turn_until(loop, [&] { return calls == 1; }));
  turn_all(loop);
  CHECK(calls == 1);
}

TEST_CASE("loop: a socket is watched for writing again and again beside its watch for reading") {
  Loop loop;
  const channel::Pair pair = make_pair();
  const auto reading = loop.on_readable(pair.first.get(), [] {});
  for (int i = 0; i < 100; ++i) {
    int calls = 0;
    std::unique_ptr<Loop::Watch> writing;
    writing = loop.on_writable(pair.first.get(), [&] {
      ++calls;
      writing.reset();
    });
    REQUIRE(writing);
    REQUIRE(turn_until(loop, [&] { return calls == 1; }));
  }
}

TEST_CASE("loop: a watch that ended leaves nothing in the kernel that fires for the next one") {
  Loop loop;
  const channel::Pair open = make_pair();
  const Fd copy(::dup(open.first.get()));  // as the keeper's of the listening socket: the file stays open
  poke(open.second);
  for (int i = 0; i < 50; ++i) {
    const auto ended = loop.on_readable(open.first.get(), [] {});
    turn_all(loop);
  }
  const channel::Pair quiet = make_pair();
  int calls = 0;
  const auto watch = loop.on_readable(quiet.first.get(), [&] { ++calls; });
  turn_all(loop);
  CHECK(calls == 0);
  poke(quiet.second);
  CHECK(turn_until(loop, [&] { return calls > 0; }));
}

TEST_CASE("F30: loop: no room for a watch is an answer, not an exception") {
  Loop loop;
  CHECK(loop.on_readable(-1, [] {}) == nullptr);
  CHECK(loop.on_writable(-1, [] {}) == nullptr);
}

TEST_CASE("loop: a signal is told each time") {
  Loop loop;
  int told = 0;
  loop.on_signals({SIGHUP}, [&](int signal) { told += signal == SIGHUP ? 1 : 0; });
  for (int i = 1; i <= 3; ++i) {
    ::raise(SIGHUP);
    CHECK(turn_until(loop, [&] { return told == i; }));
  }
}

TEST_CASE("watch: a process that ends is told once; one without a pidfd never") {
  Loop loop;
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  Result<Fd> pidfd = open_pidfd(child);
  REQUIRE(pidfd.ok());
  int gone = 0;
  const ProcessWatch watch(loop, *std::move(pidfd), [&] { ++gone; });
  const ProcessWatch blind(loop, Fd{}, [&] { gone += 100; });
  turn_all(loop);
  CHECK(gone == 0);
  ::kill(child, SIGKILL);
  CHECK(turn_until(loop, [&] { return gone != 0; }));
  turn_all(loop);
  CHECK(gone == 1);
  ::waitpid(child, nullptr, 0);
}
