// The broker's end of the keeper's socket, against a keeper that the test plays.
#include "broker/keeper_link.hpp"

#include <thread>

#include "shm/memfd.hpp"
#include "tests/unit/broker/shell_support.hpp"

using namespace apportion;
using namespace apportion::testing;

namespace {

struct Bench {
  Loop loop;
  channel::Pair pair{make()};
  KeeperLink link{loop, std::move(pair.first)};
  std::vector<std::string> lost;
  int pinged = 0;

  static channel::Pair make() {
    Result<channel::Pair> made = channel::make_pair();
    REQUIRE(made.ok());
    return *std::move(made);
  }
  void watch() {
    REQUIRE(link.watch([this](const std::string& why) { lost.push_back(why); }, [this] { ++pinged; }).ok());
  }
  Got next() {
    std::optional<Got> got = next_message(loop, pair.second.get(), wire::Sender::keeper_pair);
    REQUIRE(got);
    return *std::move(got);
  }
  void acknowledge(std::uint64_t request, std::uint32_t code = 0) {
    auto ack = wire::make<wire::Ack>(request, 0);
    ack.code = code;
    say(pair.second.get(), ack);
  }
};

std::vector<Fd> one_file() {
  Result<Fd> memfd = make_memfd("chunk", 4_KiB);
  REQUIRE(memfd.ok());
  std::vector<Fd> fds;
  fds.push_back(*std::move(memfd));
  return fds;
}

}  // namespace

TEST_CASE("keeper link: pings are answered, and each tells that it was") {
  Bench bench;
  bench.watch();
  for (int i = 1; i <= 3; ++i) {
    say(bench.pair.second.get(), wire::make<wire::Ping>(0, 0));
    CHECK(std::holds_alternative<wire::Pong>(bench.next().message));
    CHECK(bench.pinged == i);
  }
}

TEST_CASE("keeper link: one message is in flight; the next goes when it is answered") {
  Bench bench;
  bench.watch();
  std::vector<int> answered;
  const std::vector<ChunkId> ids{{1}};
  bench.link.put(ids, one_file(), [&](const Status& kept) { answered.push_back(kept.ok() ? 1 : -1); });
  bench.link.del(ids, [&](const Status& kept) { answered.push_back(kept.ok() ? 2 : -2); });
  const Got put = bench.next();
  CHECK(std::get<wire::Put>(put.message).entries[0].id == 1);
  CHECK(put.fds.size() == 1);
  turn_all(bench.loop);
  channel::Datagram nothing;
  CHECK_FALSE(*channel::try_receive(bench.pair.second.get(), nothing));
  bench.acknowledge(999);  // not what was asked
  turn_all(bench.loop);
  CHECK(answered.empty());
  bench.acknowledge(wire::header_of(put.message).request_id);
  const Got del = bench.next();
  CHECK(std::holds_alternative<wire::Del>(del.message));
  CHECK(answered == std::vector<int>{1});
  bench.acknowledge(wire::header_of(del.message).request_id);
  CHECK(turn_until(bench.loop, [&] { return answered.size() == 2; }));
}

TEST_CASE("K5: keeper link: a keeper that could not keep is an error with what to do, not an end") {
  Bench bench;
  bench.watch();
  std::optional<Status> answer;
  const std::vector<ChunkId> ids{{1}};
  bench.link.put(ids, one_file(), [&](const Status& kept) { answer = kept; });
  const Got put = bench.next();
  bench.acknowledge(wire::header_of(put.message).request_id, 1 + static_cast<std::uint32_t>(Errc::protocol));
  REQUIRE(turn_until(bench.loop, [&] { return answer.has_value(); }));
  REQUIRE_FALSE(answer->ok());
  CHECK(answer->error().message.find("LimitNOFILE") != std::string::npos);
  CHECK(bench.lost.empty());
}

TEST_CASE("F51: keeper link: without a keeper, what waits and what comes is answered, and said once") {
  Bench bench;
  bench.watch();
  int done = 0;
  const std::vector<ChunkId> ids{{1}};
  const auto count = [&](const Status& kept) { done += kept.ok() ? 1 : 100; };
  bench.link.put(ids, one_file(), count);
  bench.link.del(ids, count);
  static_cast<void>(bench.next());  // in the middle of a PUT
  bench.pair.second.reset();
  CHECK(turn_until(bench.loop, [&] { return done == 2; }));
  CHECK(bench.lost.size() == 1);
  bench.link.put(ids, one_file(), count);
  bench.link.del(ids, count);
  CHECK(turn_until(bench.loop, [&] { return done == 4; }));
  bench.link.ready();
  CHECK(bench.lost.size() == 1);
}

TEST_CASE(
    "keeper link: what a predecessor left is taken over; its chunks' descriptors stay with the keeper") {
  Bench bench;
  std::thread keeper([&] {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    channel::Datagram datagram;
    if (!channel::receive(bench.pair.second.get(), datagram, deadline).ok()) return;
    const std::uint64_t request = wire::decode_header(datagram.bytes())->request_id;
    auto put = wire::make<wire::Put>(request, 0);
    std::vector<Fd> fds;
    std::vector<int> numbers;
    for (const auto kind : {wire::KeptKind::chunk, wire::KeptKind::chunk, wire::KeptKind::journal}) {
      put.entries[put.part.count++] = {
          .id = 5, .bytes = 4096, .kind = static_cast<std::uint32_t>(kind), .reserved = 0};
      fds.push_back(*make_memfd("kept", 4_KiB));
      numbers.push_back(fds.back().get());
    }
    (void)channel::send(bench.pair.second.get(), wire::bytes_of(wire::make<wire::Ping>(0, 0)), {}, deadline);
    (void)channel::send(bench.pair.second.get(), wire::bytes_of(put), numbers, deadline);
    auto ack = wire::make<wire::Ack>(request, 0);
    ack.count = 3;
    (void)channel::send(bench.pair.second.get(), wire::bytes_of(ack), {}, deadline);
  });
  const Result<KeeperLink::Inheritance> kept = bench.link.take();
  keeper.join();
  REQUIRE(kept.ok());
  CHECK(kept->chunks == 2);
  CHECK(kept->journal.valid());
  CHECK(kept->journal_bytes == 4_KiB);
  CHECK_FALSE(kept->device_lock.valid());
  CHECK_FALSE(kept->listening_socket.valid());
}
