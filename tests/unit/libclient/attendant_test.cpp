// The session's thread: when it is called, when not, and that it takes nothing from the program.
#include "libclient/attendant.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

#include <functional>
#include <thread>

#include "libclient/broker_link.hpp"
#include "shm/memfd.hpp"
#include "tests/support/catch.hpp"

using namespace apportion;
using namespace std::chrono_literals;

namespace {

constexpr std::uint64_t kEpoch = 7;

channel::Deadline soon() {
  return std::chrono::steady_clock::now() + 2s;
}

bool until(const std::function<bool()>& done) {
  for (const auto deadline = soon(); !done();) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    ::poll(nullptr, 0, 1);
  }
  return true;
}

// A link to a broker that the test plays, with a thread that reads what comes unasked.
class Attended final : public Attendant::Duties {
 public:
  Attended() : attendant(*this) {
    Result<channel::Pair> pair = channel::make_pair();
    REQUIRE(pair);
    broker = std::move(pair->first);
    std::vector<Fd> pages;
    for (int index = 0; index < 3; ++index)
      pages.push_back(*make_memfd("page", 4096_B));
    const int fds[] = {pages[0].get(), pages[1].get(), pages[2].get()};
    send(wire::make<wire::Welcome>(1, kEpoch), fds);
    BrokerLink::Options options;
    options.answer_time = 2s;
    Result<std::unique_ptr<BrokerLink>> opened =
        BrokerLink::open(std::move(pair->second), "/run/x/broker.sock", options);
    REQUIRE(opened);
    link = *std::move(opened);
    REQUIRE(attendant.start().ok());
    REQUIRE(link->watch(attendant.watch()).ok());
  }
  ~Attended() override { attendant.stop(); }

  std::optional<Attendant::Clock::time_point> attend() noexcept override {
    link->read_unasked();
    ++calls;
    return work ? work() : std::nullopt;
  }

  template <typename M>
  void send(const M& message, std::span<const int> fds = {}) const {
    REQUIRE(channel::send(broker.get(), wire::bytes_of(message), fds, soon()).ok());
  }

  Fd broker;
  std::unique_ptr<BrokerLink> link;
  std::atomic<int> calls{0};
  std::function<std::optional<Attendant::Clock::time_point>()> work;  // set before it is woken
  Attendant attendant;
};

}  // namespace

TEST_CASE("attendant: what the broker asks while nobody calls is read at once") {
  Attended session;
  auto reclaim = wire::make<wire::Reclaim>(5, kEpoch);
  reclaim.bytes = 1;
  session.send(reclaim);
  CHECK(until([&] { return session.link->recalled(); }));
}

TEST_CASE("attendant: the answers of a caller's exchange wake nobody else") {
  Attended session;
  constexpr int kExchanges = 200;
  for (int index = 0; index < kExchanges; ++index) {
    auto released = wire::make<wire::Released>(2 + static_cast<std::uint64_t>(index), kEpoch);
    std::uint64_t id = 1;
    // The answer comes during the exchange, as it does from a broker.
    std::thread answering([&] {
      channel::Datagram datagram;
      if (channel::receive(session.broker.get(), datagram, soon())) session.send(released);
    });
    const Status done = session.link->release(std::span(&id, 1));
    answering.join();
    if (!done) FAIL(done.error().message);
  }
  CHECK(session.calls == 0);
}

TEST_CASE("attendant: the end of the connection is noticed once, and then it sleeps") {
  Attended session;
  session.broker.reset();
  REQUIRE(until([&] { return session.calls == 1; }));
  // Three more, one for each wake-up that is waited for: none of its own.
  for (int calls = 2; calls <= 4; ++calls) {
    session.attendant.wake();
    REQUIRE(until([&] { return session.calls >= calls; }));
    CHECK(session.calls == calls);
  }
  const auto failed = session.link->request(1_MiB, 1_MiB, 0, [](auto&&...) { return Status(Done{}); });
  REQUIRE(!failed);
  CHECK(failed.error().code == Errc::disconnected);
}

TEST_CASE("attendant: it comes back at the time that its duties chose, and never before") {
  Attended session;
  const auto chosen = Attendant::Clock::now() + 20ms;
  std::atomic<bool> early{false};
  session.work = [&]() -> std::optional<Attendant::Clock::time_point> {
    if (session.calls == 1) return chosen;
    early = Attendant::Clock::now() < chosen;
    return std::nullopt;
  };
  session.attendant.wake();
  REQUIRE(until([&] { return session.calls == 2; }));
  session.attendant.stop();
  CHECK_FALSE(early);
}

TEST_CASE("attendant: no signal of the program's is handled on it, and it can be stopped and started again") {
  Attended session;
  std::atomic<int> blocked{0};
  session.work = [&]() -> std::optional<Attendant::Clock::time_point> {
    sigset_t mask;
    ::pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    blocked = 0;
    for (const int signal : {SIGTERM, SIGINT, SIGUSR1, SIGPROF, SIGCHLD})
      blocked = blocked + ::sigismember(&mask, signal);
    return std::nullopt;
  };
  for (int round = 1; round <= 3; ++round) {
    session.attendant.wake();
    REQUIRE(until([&] { return session.calls >= round; }));
    session.attendant.stop();
    CHECK(blocked == 5);
    REQUIRE(session.attendant.start().ok());
  }
}
