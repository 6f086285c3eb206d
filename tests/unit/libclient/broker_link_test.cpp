// The session with the broker over a socket pair: what is sent, and what becomes of answers that are late,
// old, wrong or never come. No driver: chunks are memfds.
#include "libclient/broker_link.hpp"

#include <filesystem>
#include <thread>

#include "shm/memfd.hpp"
#include "tests/support/catch.hpp"

using namespace apportion;
using namespace std::chrono_literals;

namespace {

constexpr std::uint64_t kEpoch = 7;
// The link numbers its requests from 1, and HELLO is the first: answers can be queued before they are asked
// for.
constexpr std::uint64_t kHello = 1;

class Peer {
 public:
  explicit Peer(std::chrono::milliseconds answer_time = 2s) {
    Result<channel::Pair> pair = channel::make_pair();
    REQUIRE(pair);
    end_ = std::move(pair->first);
    auto welcome = wire::make<wire::Welcome>(kHello, kEpoch);
    welcome.job.set("trainer");
    send(welcome, 3);
    BrokerLink::Options options;
    options.job = "trainer";
    options.answer_time = answer_time;
    Result<std::unique_ptr<BrokerLink>> opened =
        BrokerLink::open(std::move(pair->second), "/run/x/broker.sock", options);
    if (!opened) FAIL(opened.error().message);
    link = *std::move(opened);
    link->take_pages().clear();
    REQUIRE(next<wire::Hello>());
  }

  template <typename M>
  void send(const M& message, std::size_t fds = 0) {
    std::vector<Fd> owned;
    std::vector<int> numbers;
    for (std::size_t index = 0; index < fds; ++index) {
      Result<Fd> fd = make_memfd("chunk", 4096_B);
      REQUIRE(fd);
      owned.push_back(*std::move(fd));
      numbers.push_back(owned.back().get());
    }
    REQUIRE(channel::send(end_.get(), wire::bytes_of(message), numbers, soon()).ok());
  }
  // A GRANT of chunks first .. first + count - 1, of 2 MiB each.
  void grant(std::uint64_t request_id, std::uint64_t first, std::uint32_t count, std::uint32_t part = 0,
             std::uint32_t parts = 1, std::uint64_t epoch = kEpoch) {
    auto message = wire::make<wire::Grant>(request_id, epoch);
    message.part = {part, parts, count, 0};
    for (std::uint32_t index = 0; index < count; ++index)
      message.entries[index] = {first + index, 2 << 20};
    send(message, count);
  }
  // What the link sent next, if it is an M; nothing where it is not or nothing came.
  template <typename M>
  [[nodiscard]] std::optional<M> next() {
    channel::Datagram datagram;
    const Result<bool> received = channel::try_receive(end_.get(), datagram);
    if (!received || !*received) return std::nullopt;
    const Result<wire::Message> message = wire::decode(datagram.bytes(), wire::Sender::client);
    if (!message || !std::holds_alternative<M>(*message)) return std::nullopt;
    return std::get<M>(*message);
  }
  [[nodiscard]] int end() const { return end_.get(); }
  void hang_up() { end_.reset(); }
  [[nodiscard]] static channel::Deadline soon() { return std::chrono::steady_clock::now() + 2s; }

  std::unique_ptr<BrokerLink> link;

 private:
  Fd end_;
};

Status take_all(Bytes, std::span<const wire::ChunkEntry>, std::vector<Fd>) {
  return Done{};
}

std::size_t open_fds() {
  std::size_t count = 0;
  for (auto entry = std::filesystem::directory_iterator("/proc/self/fd");
       entry != std::filesystem::directory_iterator(); ++entry) {
    ++count;
  }
  return count;
}

}  // namespace

TEST_CASE("a grant in parts is taken part by part, each acknowledged by its ids") {
  Peer peer;
  peer.grant(2, 100, 2, 0, 2);
  peer.grant(2, 102, 1, 1, 2);
  std::vector<std::uint64_t> done;
  const auto granted = peer.link->request(6_MiB, 6_MiB, 0, [&](Bytes before, auto, auto) -> Status {
    done.push_back(before.value);
    return Done{};
  });
  REQUIRE(granted);
  CHECK(granted->taken == 6_MiB);
  CHECK(!granted->error);
  CHECK(done == std::vector<std::uint64_t>{0, 4 << 20});
  const auto request = peer.next<wire::Request>();
  REQUIRE(request);
  CHECK(request->min_bytes == 6 << 20);
  CHECK(request->header.epoch == kEpoch);
  const auto first = peer.next<wire::GrantAck>();
  const auto second = peer.next<wire::GrantAck>();
  REQUIRE(first);
  REQUIRE(second);
  CHECK(first->part.count == 2);
  CHECK(first->ids[1] == 101);
  CHECK(second->ids[0] == 102);
}

TEST_CASE("after a part that cannot be taken, it and the rest are refused") {
  Peer peer;
  const std::size_t fds = open_fds();
  peer.grant(2, 100, 1, 0, 3);
  peer.grant(2, 101, 1, 1, 3);
  peer.grant(2, 102, 1, 2, 3);
  const auto granted = peer.link->request(6_MiB, 6_MiB, 0, [](Bytes before, auto, auto) -> Status {
    if (before.value == 0) return Done{};
    return Error{Errc::driver, "no"};
  });
  REQUIRE(granted);
  CHECK(granted->taken == 2_MiB);
  REQUIRE(granted->error);
  CHECK(granted->error->message == "no");
  CHECK(peer.next<wire::Request>());
  CHECK(peer.next<wire::GrantAck>());
  for (const std::uint64_t id : {101U, 102U}) {
    const auto nack = peer.next<wire::GrantNack>();
    REQUIRE(nack);
    CHECK(nack->ids[0] == id);
    CHECK(nack->reason == static_cast<std::uint32_t>(Errc::driver));
  }
  CHECK(open_fds() == fds);
}

TEST_CASE("an answer that comes too late is given back before the next one is taken") {
  Peer peer(20ms);
  const std::size_t fds = open_fds();
  const auto late = peer.link->request(2_MiB, 2_MiB, 0, take_all);
  REQUIRE(!late);
  CHECK(late.error().code == Errc::timed_out);
  CHECK(late.error().message.find("/run/x/broker.sock") != std::string::npos);
  peer.grant(2, 100, 1);
  peer.grant(3, 200, 1);
  const auto granted = peer.link->request(2_MiB, 2_MiB, 0, take_all);
  REQUIRE(granted);
  CHECK(peer.next<wire::Request>());
  CHECK(peer.next<wire::Request>());
  const auto nack = peer.next<wire::GrantNack>();
  REQUIRE(nack);
  CHECK(nack->ids[0] == 100);
  CHECK(nack->header.request_id == 2);
  const auto ack = peer.next<wire::GrantAck>();
  REQUIRE(ack);
  CHECK(ack->ids[0] == 200);
  CHECK(open_fds() == fds);
}

TEST_CASE(
    "F54: a grant of an older epoch is closed and dropped without a word, even under the right number") {
  Peer peer;
  const std::size_t fds = open_fds();
  peer.grant(2, 100, 3, 0, 1, kEpoch - 1);
  peer.grant(2, 200, 1);
  const auto granted = peer.link->request(2_MiB, 2_MiB, 0, take_all);
  REQUIRE(granted);
  CHECK(granted->taken == 2_MiB);
  CHECK(peer.next<wire::Request>());
  CHECK(peer.next<wire::GrantAck>());
  CHECK(!peer.next<wire::GrantNack>());
  CHECK(open_fds() == fds);
}

TEST_CASE("a grant with another number of descriptors is refused as the protocol's error") {
  Peer peer;
  auto message = wire::make<wire::Grant>(2, kEpoch);
  message.part = {0, 1, 2, 0};
  message.entries[0] = {100, 2 << 20};
  message.entries[1] = {101, 2 << 20};
  peer.send(message, 1);
  const auto granted = peer.link->request(4_MiB, 4_MiB, 0, take_all);
  REQUIRE(granted);
  CHECK(granted->taken == 0_B);
  REQUIRE(granted->error);
  CHECK(granted->error->code == Errc::protocol);
  CHECK(peer.next<wire::Request>());
  const auto nack = peer.next<wire::GrantNack>();
  REQUIRE(nack);
  CHECK(nack->part.count == 2);
}

TEST_CASE("a refusal comes with the broker's code and line; the link goes on") {
  Peer peer;
  auto refusal = wire::make<wire::Refusal>(2, kEpoch);
  refusal.code = static_cast<std::uint32_t>(Errc::quota);
  refusal.text.set("job trainer: 4 GiB asked, 2 GiB free; job other (pid 7) holds 6 GiB");
  peer.send(refusal);
  const auto refused = peer.link->request(2_MiB, 2_MiB, 0, take_all);
  REQUIRE(!refused);
  CHECK(refused.error().code == Errc::quota);
  CHECK(refused.error().message == refusal.text.view());
  peer.grant(3, 100, 1);
  CHECK(peer.link->request(2_MiB, 2_MiB, 0, take_all));
}

TEST_CASE("a REQUEST that is refused as a message leaves the link as it was; any other REFUSED ends it") {
  Peer peer;
  auto refused = wire::make<wire::Refused>(2, kEpoch);
  refused.code = static_cast<std::uint32_t>(Errc::busy);
  refused.text.set("more than 1000 requests in a second; slow down");
  peer.send(refused);
  CHECK(peer.link->request(2_MiB, 2_MiB, 0, take_all).error().message == refused.text.view());
  peer.grant(3, 100, 1);
  CHECK(peer.link->request(2_MiB, 2_MiB, 0, take_all));
  refused.header.request_id = 0;
  refused.text.set("session ended by the administrator");
  peer.send(refused);
  for (int call = 0; call < 2; ++call) {
    CHECK(peer.link->request(2_MiB, 2_MiB, 0, take_all).error().message ==
          "session ended by the administrator");
  }
}

TEST_CASE("a release of many is sent in parts and waits for its one answer") {
  Peer peer;
  std::vector<std::uint64_t> ids(500);
  for (std::size_t index = 0; index < ids.size(); ++index)
    ids[index] = index;
  peer.send(wire::make<wire::Released>(2, kEpoch));
  CHECK(peer.link->release(ids).ok());
  const auto first = peer.next<wire::Release>();
  const auto second = peer.next<wire::Release>();
  REQUIRE(first);
  REQUIRE(second);
  CHECK(first->part.count == 480);
  CHECK(second->part.count == 20);
  CHECK(second->ids[19] == 499);
}

TEST_CASE("what the broker asks back is remembered until it is taken, and answered under its own id") {
  Peer peer;
  auto reclaim = wire::make<wire::Reclaim>(77, kEpoch);
  reclaim.bytes = 64 << 20;
  peer.send(reclaim);
  peer.grant(2, 100, 1);
  CHECK(peer.link->request(2_MiB, 2_MiB, 0, take_all));
  const std::optional<BrokerLink::Recall> recall = peer.link->take_recall();
  REQUIRE(recall);
  CHECK(recall->bytes == 64_MiB);
  CHECK_FALSE(peer.link->take_recall());
  REQUIRE(peer.link->settle(*recall, 32_MiB, Errc::busy).ok());
  REQUIRE(peer.next<wire::Request>());
  REQUIRE(peer.next<wire::GrantAck>());
  const auto answer = peer.next<wire::Reclaimed>();
  REQUIRE(answer);
  CHECK(answer->header.request_id == 77);
  CHECK(answer->bytes == (32_MiB).value);
  CHECK(answer->code == 1 + static_cast<std::uint32_t>(Errc::busy));
}

TEST_CASE("a lost connection is said at every call, with the socket's path") {
  Peer peer;
  peer.hang_up();
  for (int call = 0; call < 2; ++call) {
    const auto failed = peer.link->request(2_MiB, 2_MiB, 0, take_all);
    REQUIRE(!failed);
    CHECK(failed.error().code == Errc::disconnected);
    CHECK(failed.error().message.find("/run/x/broker.sock is gone") != std::string::npos);
  }
  const std::uint64_t id = 1;
  CHECK(peer.link->release(std::span(&id, 1)).error().code == Errc::disconnected);
  CHECK(peer.link->detach().ok());
}

TEST_CASE("nonsense from the broker ends the link instead of being believed") {
  Peer peer;
  auto grant = wire::make<wire::Grant>(2, kEpoch);
  grant.part = {0, 1, 200, 0};  // more entries than there is room for
  peer.send(grant, 1);
  CHECK(peer.link->request(2_MiB, 2_MiB, 0, take_all).error().code == Errc::protocol);
  CHECK(peer.link->request(2_MiB, 2_MiB, 0, take_all).error().code == Errc::protocol);
}

TEST_CASE("threads that ask at once get their own answers") {
  Peer peer;
  constexpr int kThreads = 4;
  constexpr std::uint64_t kEach = 50;
  std::atomic<int> wrong{0};
  std::thread broker([&] {
    for (std::uint64_t answered = 0; answered < kThreads * kEach;) {
      channel::Datagram datagram;
      if (!channel::receive(peer.end(), datagram, Peer::soon())) {
        ++wrong;
        return;
      }
      const Result<wire::Message> message = wire::decode(datagram.bytes(), wire::Sender::client);
      if (!message || !std::holds_alternative<wire::Request>(*message)) continue;
      // As many descriptors as the request's number says, to tell answers apart.
      peer.grant(wire::header_of(*message).request_id, 100, 1 + wire::header_of(*message).request_id % 3);
      ++answered;
    }
  });
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&] {
      for (std::uint64_t call = 0; call < kEach; ++call) {
        std::size_t fds = 0;
        const auto granted =
            peer.link->request(2_MiB, 6_MiB, 0, [&](Bytes, auto, std::vector<Fd> came) -> Status {
              fds = came.size();
              return Done{};
            });
        if (!granted || granted->taken != Bytes{fds * (2 << 20)}) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  broker.join();
  CHECK(wrong == 0);
}
