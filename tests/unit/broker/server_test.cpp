// From messages to events, over socket pairs: what is refused, what is put together, who is watched.
#include "broker/server.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include "tests/unit/broker/shell_support.hpp"

using namespace apportion;
using namespace apportion::testing;

namespace {

constexpr std::size_t kMaxIds = 1000;

struct Bench final : Server::Sink {
  Loop loop;
  Server server{loop, -1, {10'000, kMaxIds}, *this};
  std::vector<Event> events;
  std::size_t questions = 0;
  std::vector<ConnectionId> askers;

  void event(const Event& event) override { events.push_back(event); }
  void status_wanted(ConnectionId from, const wire::StatusRequest& /*request*/) override {
    askers.push_back(from);
  }
  // A client's end. The server takes us for the process at the other one.
  Fd connect() {
    Result<channel::Pair> pair = channel::make_pair();
    REQUIRE(pair.ok());
    REQUIRE(server.take(std::move(pair->first)).ok());
    return std::move(pair->second);
  }
  template <typename E>
  std::vector<E> seen() const {
    std::vector<E> found;
    for (const Event& event : events)
      if (const E* one = std::get_if<E>(&event)) found.push_back(*one);
    return found;
  }
  template <typename E>
  bool wait_for(std::size_t count = 1) {
    return turn_until(loop, [&] { return seen<E>().size() >= count; });
  }
  // Attached: what the shell does on Welcome.
  Fd attach(SessionId session) {
    Fd far = connect();
    const std::size_t before = seen<events::SessionWanted>().size();
    say(far.get(), hello());
    REQUIRE(wait_for<events::SessionWanted>(before + 1));
    REQUIRE(server.bind(seen<events::SessionWanted>().back().connection, session));
    return far;
  }
  static wire::Hello hello() {
    auto hello = wire::make<wire::Hello>(3, 0);
    hello.job.set("a");
    hello.layouts = wire::current_layouts();
    return hello;
  }
  std::string refusal(const Fd& far) {
    const std::optional<Got> got = next_message(loop, far.get());
    REQUIRE(got);
    const auto* refused = std::get_if<wire::Refused>(&got->message);
    REQUIRE(refused != nullptr);
    return std::string(refused->text.view());
  }
  bool hung_up(const Fd& far) { return !next_message(loop, far.get()).has_value(); }
};

wire::Hello resuming() {
  wire::Hello hello = Bench::hello();
  hello.token.bytes[0] = 1;
  return hello;
}

wire::Leases leases(std::uint32_t part, std::uint32_t parts, std::uint32_t count) {
  auto leases = wire::make<wire::Leases>(4, 0);
  leases.part = {part, parts, count, 0};
  for (std::uint32_t i = 0; i < count; ++i)
    leases.entries[i] = {.chunk_id = 1000ULL * part + i, .bytes = 4096};
  return leases;
}

wire::Release release(std::uint64_t request, std::uint32_t part, std::uint32_t parts, std::uint32_t count) {
  auto release = wire::make<wire::Release>(request, 1);
  release.part = {part, parts, count, 0};
  for (std::uint32_t i = 0; i < count; ++i)
    release.ids[i] = 1000ULL * part + i;
  return release;
}

}  // namespace

TEST_CASE("server: who asks comes from the kernel, what for from HELLO") {
  Bench bench;
  const Fd far = bench.connect();
  say(far.get(), Bench::hello());
  REQUIRE(bench.wait_for<events::SessionWanted>());
  const events::SessionWanted wanted = bench.seen<events::SessionWanted>()[0];
  CHECK(wanted.job == "a");
  CHECK(wanted.peer.pid == ::getpid());
  CHECK(wanted.peer.uid == ::getuid());
  CHECK(wanted.peer.start_time != 0);
  CHECK_FALSE(wanted.fresh.none());
  CHECK_FALSE(wanted.resume.has_value());
}

TEST_CASE("F24: server: a message before HELLO is refused and the connection ends") {
  Bench bench;
  const Fd far = bench.connect();
  say(far.get(), release(1, 0, 1, 1));
  CHECK(bench.refusal(far).find("send HELLO first") != std::string::npos);
  CHECK(bench.hung_up(far));
  CHECK(bench.events.empty());
}

TEST_CASE("F24: server: HELLO twice is refused, in a session and before its LEASES") {
  Bench bench;
  const Fd attached = bench.attach({5});
  say(attached.get(), Bench::hello());
  CHECK(bench.refusal(attached).find("not for an attached session") != std::string::npos);
  CHECK(bench.hung_up(attached));
  CHECK(bench.seen<events::HungUp>().size() == 1);
  const Fd resumes = bench.connect();
  say(resumes.get(), resuming());
  say(resumes.get(), resuming());
  CHECK(bench.refusal(resumes).find("second HELLO") != std::string::npos);
}

TEST_CASE("F16: server: LEASES are put together over their parts") {
  Bench bench;
  const Fd far = bench.connect();
  say(far.get(), resuming());
  say(far.get(), leases(0, 3, 240));
  say(far.get(), leases(1, 3, 240));
  turn_all(bench.loop);
  CHECK(bench.events.empty());
  say(far.get(), leases(2, 3, 7));
  REQUIRE(bench.wait_for<events::SessionWanted>());
  const events::SessionWanted wanted = bench.seen<events::SessionWanted>()[0];
  CHECK(wanted.claimed.size() == 487);
  CHECK(wanted.claimed.back() == ChunkId{2006});
  CHECK(wanted.resume == resuming().token);
}

TEST_CASE("F24: server: LEASES without end, out of order, or of more chunks than there can be are refused") {
  Bench bench;
  const Fd far = bench.connect();
  say(far.get(), resuming());
  SECTION("without end") {
    for (std::uint32_t part = 0; part < 10; ++part)
      say(far.get(), leases(part, 65536, 240));
    CHECK(bench.refusal(far).find("more chunks than the pool can have") != std::string::npos);
  }
  SECTION("the same part again") {
    say(far.get(), leases(0, 2, 1));
    say(far.get(), leases(0, 2, 1));
    CHECK(bench.refusal(far).find("part 0 of a list where part 1") != std::string::npos);
  }
  SECTION("a list of another length") {
    say(far.get(), leases(0, 2, 1));
    say(far.get(), leases(1, 3, 1));
    CHECK(bench.refusal(far).find("had to come") != std::string::npos);
  }
  CHECK(bench.events.empty());
}

TEST_CASE("server: a RELEASE in parts is one event, with everything, after its last part") {
  Bench bench;
  const Fd far = bench.attach({5});
  say(far.get(), release(9, 0, 2, 480));
  turn_all(bench.loop);
  CHECK(bench.seen<events::Released>().empty());
  say(far.get(), release(9, 1, 2, 20));
  REQUIRE(bench.wait_for<events::Released>());
  say(far.get(), release(10, 0, 1, 1));
  REQUIRE(bench.wait_for<events::Released>(2));
  const auto released = bench.seen<events::Released>();
  CHECK(released[0].ids.size() == 500);
  CHECK(released[0].request == RequestId{9});
  CHECK(released[1].ids.size() == 1);
  say(far.get(), release(11, 0, 3, 480));
  say(far.get(), release(12, 1, 3, 480));  // of another list
  CHECK(bench.refusal(far).find("had to come") != std::string::npos);
}

TEST_CASE("F28: server: connections without a session are limited for each user, and free up again") {
  Bench bench;
  std::vector<Fd> silent;
  for (std::size_t i = 0; i < Server::kMaxWaitingPerUid; ++i)
    silent.push_back(bench.connect());
  const Fd refused = bench.connect();
  CHECK(bench.refusal(refused).find("connections without a session") != std::string::npos);
  CHECK(bench.hung_up(refused));
  silent.clear();
  turn_all(bench.loop);
  REQUIRE(turn_until(bench.loop, [&] {
    Fd again = bench.connect();
    const wire::Hello hello = Bench::hello();
    (void)channel::try_send(again.get(), wire::bytes_of(hello));
    turn_all(bench.loop);
    return !bench.events.empty();
  }));
}

TEST_CASE("F29: server: a connection that says nothing is closed, one with a session is not") {
  Bench bench;
  const Fd silent = bench.connect();
  const Fd attached = bench.attach({5});
  CHECK(bench.hung_up(silent));
  turn_all(bench.loop);
  CHECK(bench.server.connection_of({5}) != nullptr);
  CHECK(bench.seen<events::HungUp>().empty());
}

TEST_CASE("F28: server: a reader of the status has one question at a time") {
  Bench bench;
  const Fd far = bench.connect();
  for (int i = 0; i < 10; ++i)
    say(far.get(), wire::make<wire::StatusRequest>(1, 0));
  turn_all(bench.loop);
  REQUIRE(bench.askers.size() == 1);
  bench.server.find(bench.askers[0])->resume();
  CHECK(turn_until(bench.loop, [&] { return bench.askers.size() == 2; }));
  turn_all(bench.loop);
  CHECK(bench.askers.size() == 2);
}

TEST_CASE("server: a session that goes on in a new connection ends the old one, and is not hung up") {
  Bench bench;
  const Fd first = bench.attach({5});
  const Fd second = bench.attach({5});
  CHECK(bench.hung_up(first));
  turn_all(bench.loop);
  CHECK(bench.seen<events::HungUp>().empty());
  say(second.get(), release(1, 0, 1, 1));
  CHECK(bench.wait_for<events::Released>());
}

TEST_CASE("server: a goodbye is answered with what the core says was given back") {
  Bench bench;
  const Fd far = bench.attach({5});
  say(far.get(), wire::make<wire::Detach>(8, 1));
  REQUIRE(bench.wait_for<events::Detached>());
  bench.server.end({SessionId{5}, "", 96_MiB}, 1);
  const std::optional<Got> got = next_message(bench.loop, far.get());
  REQUIRE(got);
  const auto& detached = std::get<wire::Detached>(got->message);
  CHECK(detached.header.request_id == 8);
  CHECK(detached.bytes == (96_MiB).value);
  CHECK(bench.hung_up(far));
  CHECK(bench.seen<events::HungUp>().empty());
  CHECK(bench.server.connection_of({5}) == nullptr);
}
