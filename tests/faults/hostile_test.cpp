// Clients that mean harm, or are broken: each is answered or dropped alone, and everybody else is served on.
#include <fcntl.h>
#include <linux/falloc.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <random>

#include "shm/socket_path.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/raw_client.hpp"
#include "tests/support/test_client.hpp"

using namespace apportion;
using namespace apportion::testing;

namespace {

constexpr uid_t kStranger = 4242;

BrokerOptions two_jobs() {
  BrokerOptions options;
  options.device = 4_GiB;
  options.jobs = "[jobs.a]\nshare = \"0.5\"\n[jobs.b]\nshare = \"0.5\"\n";
  return options;
}

// A client that holds memory while others attack, and must notice nothing.
class Witness {
 public:
  explicit Witness(TestBroker& broker) : broker_(broker), client_(broker), pid_(broker.broker_pid()) {
    client_.attach("b");
    block_ = client_.alloc(kHeld);
    client_.write(block_, kHeld, 5);
    before_ = broker.footprint();
  }
  void noticed_nothing() {
    CHECK(client_.check(block_, kHeld, 5) == kHeld);
    const std::uint64_t more = client_.alloc(128_MiB);
    client_.free(more);
    client_.trim(kHeld);
    CHECK(broker_.broker_pid() == pid_);
    CHECK(broker_.status().sessions.size() == 1);
    TestBroker::check_sums(broker_.status());
    broker_.wait_footprint(before_);
  }

 private:
  static constexpr Bytes kHeld = 96_MiB;
  TestBroker& broker_;
  TestClient client_;
  pid_t pid_;
  std::uint64_t block_ = 0;
  TestBroker::Footprint before_;
};

// Answered with REFUSED, or dropped without a word; in the end the connection is closed.
void expect_dropped(RawClient& client) {
  while (const auto answer = client.receive(std::chrono::seconds(10))) {
    CHECK(answer->fds.empty());
    CHECK(std::holds_alternative<wire::Refused>(answer->message));
  }
  CHECK(client.hung_up(std::chrono::seconds(10)));
}

std::vector<std::byte> copy_of(std::span<const std::byte> bytes) {
  return {bytes.begin(), bytes.end()};
}

// How many ways of changing or taking away a page worked, out of those a client can try with its descriptor.
int attacks_that_worked(int fd, std::size_t bytes) {
  int worked = 0;
  const auto map = [&](int from) {
    void* page = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, from, 0);
    if (page == MAP_FAILED) return;
    ++worked;
    ::munmap(page, bytes);
  };
  const auto try_on = [&](int on) {
    map(on);
    if (::ftruncate(on, 0) == 0) ++worked;
    if (::ftruncate(on, static_cast<off_t>(bytes) * 2) == 0) ++worked;
    if (::fallocate(on, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) == 0) ++worked;
    if (::write(on, "x", 1) > 0) ++worked;
    if (::pwrite(on, "x", 1, 64) > 0) ++worked;
  };
  try_on(fd);
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  if (const Fd again{::open(path.c_str(), O_RDWR | O_CLOEXEC)}; again) try_on(again.get());
  if (const Fd cut{::open(path.c_str(), O_RDWR | O_TRUNC | O_CLOEXEC)}; cut) try_on(cut.get());
  if (::truncate(path.c_str(), 0) == 0) ++worked;
  void* reading = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
  if (reading == MAP_FAILED) return 100;
  if (::mprotect(reading, bytes, PROT_READ | PROT_WRITE) == 0) ++worked;
  if (::madvise(reading, bytes, MADV_REMOVE) == 0) ++worked;
  ::munmap(reading, bytes);
  return worked;
}

int in_child(std::optional<uid_t> uid, const std::function<int()>& work) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    if (uid && (::setgid(*uid) != 0 || ::setuid(*uid) != 0)) ::_exit(101);
    ::_exit(work());
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

TEST_CASE("F09: a peer that died before it was accepted costs no slot") {
  TestBroker broker(two_jobs());
  Witness witness(broker);
  const pid_t pid = broker.broker_pid();
  for (int i = 0; i < 5; ++i) {
    ::kill(pid, SIGSTOP);  // much shorter than the keeper's patience
    REQUIRE(in_child({}, [&] {
              Result<Fd> socket = connect_to(broker.socket());
              if (!socket.ok()) return 1;
              const wire::Hello hello = hello_message("a");
              return channel::try_send(socket->get(), wire::bytes_of(hello)).ok() ? 0 : 2;
            }) == 0);
    ::kill(pid, SIGCONT);
    REQUIRE(eventually([&] { return broker.status().sessions.size() == 1; }));
  }
  witness.noticed_nothing();
}

TEST_CASE("F22: no page of the broker can be changed or taken away by its own uid or another") {
  TestBroker broker(two_jobs());
  RawClient client(broker.socket());
  client.hello("a");
  for (const std::optional<uid_t> uid : {std::optional<uid_t>{}, std::optional<uid_t>{kStranger}}) {
    if (uid && !can_change_uid()) continue;
    for (const int page : {0, 1}) {
      INFO("page " << page << " as uid " << (uid ? *uid : ::getuid()));
      CHECK(in_child(uid, [&] {
              return attacks_that_worked(client.pages()[static_cast<std::size_t>(page)].get(), 4096);
            }) == 0);
    }
    // The report page is the client's to write, and nobody's to take away.
    CHECK(in_child(uid, [&] {
            const int report = client.pages()[2].get();
            return (::ftruncate(report, 0) == 0) + (::ftruncate(report, 1 << 20) == 0) +
                   (::fcntl(report, F_ADD_SEALS, F_SEAL_WRITE) == 0);
          }) == 0);
  }
  CHECK(broker.job("a").job.sessions == 1);
  TestBroker::check_sums(broker.status());
}

TEST_CASE("F24: truncated, oversized, empty and foreign messages drop their sender alone") {
  TestBroker broker(two_jobs());
  Witness witness(broker);
  const wire::Hello hello = hello_message("a");
  const auto whole = copy_of(wire::bytes_of(hello));
  for (const bool attached : {false, true}) {
    INFO((attached ? "in a session" : "as the first message"));
    std::vector<std::vector<std::byte>> attacks;
    for (const std::size_t size : {std::size_t{1}, std::size_t{15}, std::size_t{31}, whole.size() - 1})
      attacks.emplace_back(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    attacks.emplace_back(4097, std::byte{0x41});
    attacks.emplace_back(60000, std::byte{0});
    attacks.emplace_back();
    attacks.push_back(copy_of(wire::bytes_of(wire::make<wire::Put>(1, 0))));  // the keeper's
    attacks.push_back(copy_of(wire::bytes_of(wire::make<wire::Take>(1, 0))));
    attacks.push_back(copy_of(wire::bytes_of(wire::make<wire::Welcome>(1, 0))));  // the broker's own
    auto of_no_kind = wire::make<wire::Detach>(1, 0);
    of_no_kind.header.type = 999;
    attacks.push_back(copy_of(wire::bytes_of(of_no_kind)));
    auto unterminated = hello;
    unterminated.job.chars.fill('x');
    attacks.push_back(copy_of(wire::bytes_of(unterminated)));
    auto too_many = wire::make<wire::Release>(1, 0);
    too_many.part.count = 100000;
    attacks.push_back(copy_of(wire::bytes_of(too_many)));
    auto endless = wire::make<wire::Leases>(1, 0);
    endless.part.parts = 0xffffffff;
    attacks.push_back(copy_of(wire::bytes_of(endless)));
    for (std::size_t i = 0; i < attacks.size(); ++i) {
      INFO("attack " << i);
      RawClient client(broker.socket());
      if (attached) client.hello("a");
      client.send_bytes(attacks[i]);
      expect_dropped(client);
    }
  }
  // Attached attackers of this process live on as orphans; they hold nothing.
  CHECK(broker.job("a").job.charged == 0);
}

TEST_CASE("F24: random messages drop their sender alone") {
  const Watchdog watchdog(std::chrono::seconds(600));
  TestBroker broker(two_jobs());
  Witness witness(broker);
  std::mt19937 random(seed());
  const unsigned loops = rounds(200, 5000);
  const std::uint16_t types[] = {1, 2, 3, 4, 5, 6, 7, 8, 65, 67, 129, 131};
  for (unsigned i = 0; i < loops; ++i) {
    // The attacker is a process of its own, so that what it left is settled when it ends.
    const std::uint32_t child_seed = random();
    const int sent = in_child({}, [&] {
      std::mt19937 dice(child_seed);
      Result<Fd> socket = connect_to(broker.socket());
      if (!socket.ok()) return 1;
      if (dice() % 2 == 0) {
        const wire::Hello hello = hello_message("a");
        (void)channel::try_send(socket->get(), wire::bytes_of(hello)).ok();
      }
      for (unsigned k = dice() % 8; k > 0; --k) {
        std::vector<std::byte> bytes(dice() % 4 == 0 ? dice() % 4097 : 32 + dice() % 300);
        for (std::byte& each : bytes)
          each = static_cast<std::byte>(dice() % 3 == 0 ? dice() : 0);
        if (bytes.size() >= sizeof(wire::Header)) {
          wire::Header header;
          header.type = types[dice() % std::size(types)];
          header.size = static_cast<std::uint32_t>(bytes.size());
          header.epoch = dice() % 3;
          header.request_id = dice() % 4;
          if (dice() % 4 != 0) std::memcpy(bytes.data(), &header, sizeof header);
        }
        (void)channel::try_send(socket->get(), bytes).ok();
      }
      return 0;
    });
    REQUIRE(sent == 0);
  }
  REQUIRE(eventually([&] { return broker.status().sessions.size() == 1; }));
  witness.noticed_nothing();
}

TEST_CASE("F24: releases, acknowledgements and re-attachments of what is another's change nothing") {
  TestBroker broker(two_jobs());
  TestClient victim(broker);
  victim.attach("b");
  const std::uint64_t block = victim.alloc(96_MiB);
  victim.write(block, 96_MiB, 5);
  const Bytes charged{broker.job("b").job.charged};
  RawClient client(broker.socket());
  const wire::Welcome welcome = client.hello("a");
  auto release = wire::make<wire::Release>(client.next_request(), welcome.header.epoch);
  release.part.count = wire::kMaxIds;
  // Ids are dense: the victim's are among the first.
  for (std::uint64_t i = 0; i < wire::kMaxIds; ++i)
    release.ids[i] = (std::uint64_t{1} << 32) + i % 256;
  REQUIRE(client.send(release));
  const auto released = client.receive();
  REQUIRE(released);
  CHECK(std::get<wire::Released>(released->message).chunks == 0);
  CHECK(std::get<wire::Released>(released->message).unknown == wire::kMaxIds);
  auto ack = wire::make<wire::GrantAck>(1, welcome.header.epoch);
  ack.part.count = wire::kMaxGrantChunks;
  for (std::size_t i = 0; i < wire::kMaxGrantChunks; ++i)
    ack.ids[i] = (std::uint64_t{1} << 32) + i;
  REQUIRE(client.send(ack));
  RawClient thief(broker.socket());
  wire::Hello hello = hello_message("b");
  hello.token.bytes.fill(7);
  REQUIRE(thief.send(hello));
  REQUIRE(thief.send(wire::make<wire::Leases>(2, welcome.header.epoch)));
  const auto answer = thief.receive();
  REQUIRE(answer);
  CHECK(std::holds_alternative<wire::Refused>(answer->message));
  CHECK(broker.job("b").job.charged == charged.value);
  CHECK(broker.job("a").job.charged == 0);
  CHECK(victim.check(block, 96_MiB, 5) == 96_MiB);
  TestBroker::check_sums(broker.status());
}

TEST_CASE("F24: a list of leases without an end is refused before it fills the broker's memory") {
  TestBroker broker(two_jobs());
  Witness witness(broker);
  {
    RawClient client(broker.socket());
    wire::Hello hello = hello_message("a");
    hello.token.bytes.fill(7);
    REQUIRE(client.send(hello));
    auto leases = wire::make<wire::Leases>(1, 1);
    leases.part.parts = wire::kMaxParts;
    leases.part.count = wire::kMaxLeases;
    unsigned sent = 0;
    while (sent < 10'000 && client.send(leases)) {
      ++sent;
      ++leases.part.part;
    }
    CHECK(sent < 10'000);
    expect_dropped(client);
  }
  witness.noticed_nothing();
}

TEST_CASE("F27: a client that neither reads nor stops sending is dropped, and others are served meanwhile") {
  TestBroker broker(two_jobs());
  Witness witness(broker);
  CHECK(in_child({}, [&] {
          RawClient deaf(broker.socket());
          deaf.hello("a");
          // More answers than its socket has room for, fewer than the broker's queue.
          for (int i = 0; i < 150; ++i)
            deaf.send(wire::make<wire::StatusRequest>(1, 0));
          // They come from another thread of the broker: let them fill the socket. Then nonsense, again and
          // again.
          (void)::poll(nullptr, 0, 300);
          const std::array<std::byte, 8> nonsense{};
          for (int i = 0; i < 3; ++i)
            (void)channel::try_send(deaf.socket(), nonsense).ok();
          const bool dropped = eventually([&] {
            pollfd gone{deaf.socket(), 0, 0};
            return ::poll(&gone, 1, 0) == 1 && (gone.revents & POLLHUP) != 0;
          });
          return dropped ? 0 : 1;
        }) == 0);
  {
    RawClient deaf(broker.socket());
    while (channel::try_send(deaf.socket(), wire::bytes_of(wire::make<wire::StatusRequest>(1, 0))).ok()) {
      pollfd room{deaf.socket(), POLLOUT, 0};
      (void)::poll(&room, 1, 100);
    }
    CHECK(deaf.hung_up());
  }
  witness.noticed_nothing();
}

TEST_CASE(
    "F27: a client that asks, does not answer its grants and says goodbye gets an answer, and all comes "
    "back") {
  TestBroker broker(two_jobs());
  {
    RawClient deaf(broker.socket());
    const wire::Welcome welcome = deaf.hello("a");
    auto request = wire::make<wire::Request>(deaf.next_request(), welcome.header.epoch);
    request.min_bytes = request.want_bytes = (64_MiB).value;
    for (int i = 0; i < 4; ++i) {
      request.header.request_id = deaf.next_request();
      REQUIRE(deaf.send(request));
    }
    REQUIRE(deaf.send(wire::make<wire::Detach>(deaf.next_request(), welcome.header.epoch)));
    bool answered = false;
    while (const auto message = deaf.receive(std::chrono::seconds(20)))
      answered = answered || std::holds_alternative<wire::Detached>(message->message);
    CHECK(answered);
  }
  broker.wait_idle();
}

TEST_CASE("F25: descriptors that a client sends are closed, and its connection with them") {
  TestBroker broker(two_jobs());
  Witness witness(broker);
  const Fd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  for (const std::size_t count : {std::size_t{1}, std::size_t{128}, std::size_t{253}}) {
    INFO(count << " descriptors");
    const std::vector<int> fds(count, null.get());
    {
      RawClient client(broker.socket());
      REQUIRE(client.send(hello_message("a"), fds));
      expect_dropped(client);
    }
    {
      RawClient client(broker.socket());
      REQUIRE(client.send(wire::make<wire::StatusRequest>(1, 0), fds));
      expect_dropped(client);
    }
    {
      RawClient client(broker.socket());
      client.hello("a");
      auto detach = wire::make<wire::Detach>(client.next_request(), 1);
      REQUIRE(client.send(detach, fds));
      expect_dropped(client);
      // It was no goodbye: it is an orphan of this process, with nothing.
      CHECK(broker.job("a").job.charged == 0);
    }
  }
  const pid_t pid = broker.broker_pid();
  const std::size_t with_orphans = open_fds(pid);
  // An orphan costs its pidfd and its report page, whatever it sent.
  CHECK(with_orphans < 60);
}

TEST_CASE("F26: a client with too few descriptors says so, gives the leases back and goes on") {
  TestBroker broker(two_jobs());
  const TestBroker::Footprint before = broker.footprint();
  TestClient client(broker, {.open_files = 24});
  client.attach("a");
  const TestClient::Answer answer = client.ask("alloc " + std::to_string((768_MiB).value));
  INFO(answer.code << " " << answer.text);
  CHECK(answer.code == "APPORTION_SYSTEM");  // K5: what ran out is descriptors, not memory
  CHECK(answer.text.find("ulimit -n") != std::string::npos);
  REQUIRE(eventually([&] { return broker.job("a").job.charged == 0; }));
  TestBroker::check_sums(broker.status());
  const std::uint64_t block = client.alloc(128_MiB);
  client.write(block, 128_MiB, 2);
  CHECK(client.check(block, 128_MiB, 2) == 128_MiB);
  client.free(block);
  client.detach();
  client.kill();
  broker.wait_idle();
  broker.wait_footprint(before);
}
