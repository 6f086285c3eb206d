// One client's socket, over a socket pair whose far end the test holds.
#include "broker/session_connection.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include "shm/memfd.hpp"
#include "tests/unit/broker/shell_support.hpp"

using namespace apportion;
using namespace apportion::testing;

namespace {

struct Bench final : ClientConnection::Owner {
  struct Unsent {
    RequestId request;
    std::vector<ChunkId> ids;
    bool after_closed = false;
  };
  Loop loop;
  Fd far;
  std::unique_ptr<ClientConnection> near;
  std::vector<wire::Message> messages;
  std::vector<std::string> reasons;
  std::vector<Unsent> unsent;

  Bench() {
    Result<channel::Pair> pair = channel::make_pair();
    REQUIRE(pair.ok());
    far = std::move(pair->second);
    near =
        std::make_unique<ClientConnection>(loop, ConnectionId{1}, std::move(pair->first), Peer{}, 100, *this);
    REQUIRE(near->start());
  }
  void message(ClientConnection& /*from*/, const wire::Message& message) override {
    messages.push_back(message);
  }
  void closed(ClientConnection& /*connection*/, const std::string& why) override { reasons.push_back(why); }
  void grant_unsent(SessionId /*session*/, RequestId request, std::vector<ChunkId> ids,
                    const std::string& /*why*/) override {
    unsent.push_back({request, std::move(ids), !reasons.empty()});
  }

  // A GRANT in as many messages as there are ids, one descriptor each.
  void grant(std::uint64_t request, const std::vector<std::uint64_t>& ids) const {
    std::vector<ClientConnection::GrantPart> parts;
    for (const std::uint64_t id : ids) {
      auto message = wire::make<wire::Grant>(request, 1);
      message.part = {static_cast<std::uint32_t>(parts.size()), static_cast<std::uint32_t>(ids.size()), 1, 0};
      message.entries[0] = {.chunk_id = id, .bytes = 4096};
      ClientConnection::GrantPart part;
      const auto bytes = wire::bytes_of(message);
      part.bytes.assign(bytes.begin(), bytes.end());
      part.fds.push_back(*make_memfd("chunk", 4_KiB));
      part.ids.push_back({id});
      parts.push_back(std::move(part));
    }
    near->send_grant({1}, {request}, std::move(parts));
  }
  bool ended() {
    return turn_until(loop, [&] { return !reasons.empty(); });
  }
};

std::uint64_t chunk_of(const std::optional<Got>& got) {
  REQUIRE(got);
  return std::get<wire::Grant>(got->message).entries[0].chunk_id;
}

}  // namespace

TEST_CASE("rule 40: connection: the next descriptors go when the last are answered for") {
  Bench bench;
  bench.grant(1, {11, 12});
  bench.grant(2, {21});
  CHECK(chunk_of(next_message(bench.loop, bench.far.get())) == 11);
  turn_all(bench.loop);
  channel::Datagram nothing;
  CHECK_FALSE(*channel::try_receive(bench.far.get(), nothing));
  bench.near->grant_answered();
  CHECK(chunk_of(next_message(bench.loop, bench.far.get())) == 12);
  bench.near->grant_answered();
  const std::optional<Got> last = next_message(bench.loop, bench.far.get());
  CHECK(chunk_of(last) == 21);
  CHECK(last->fds.size() == 1);
}

TEST_CASE("connection: what of a grant never left is told once a request, after the end of the connection") {
  Bench bench;
  bench.grant(1, {11, 12, 13});
  bench.grant(2, {21, 22});
  CHECK(chunk_of(next_message(bench.loop, bench.far.get())) == 11);
  bench.far.reset();
  REQUIRE(bench.ended());
  CHECK(bench.reasons == std::vector<std::string>{ClientConnection::kHungUp});
  REQUIRE(bench.unsent.size() == 2);
  CHECK(bench.unsent[0].request == RequestId{1});
  CHECK(bench.unsent[0].ids == std::vector<ChunkId>{{12}, {13}});
  CHECK(bench.unsent[1].ids == std::vector<ChunkId>{{21}, {22}});
  CHECK(bench.unsent[0].after_closed);
  bench.grant(3, {31, 32});  // came when it was closed already
  REQUIRE(bench.unsent.size() == 3);
  CHECK(bench.unsent[2].ids.size() == 2);
  CHECK(bench.reasons.size() == 1);
}

TEST_CASE("F24: connection: bytes that are no message are answered once, and that is the end") {
  Bench bench;
  const std::array<std::byte, 40> rubbish{};
  REQUIRE(::send(bench.far.get(), rubbish.data(), rubbish.size(), 0) == 40);
  say(bench.far.get(), wire::make<wire::Detach>(1, 0));  // not looked at any more
  const std::optional<Got> refused = next_message(bench.loop, bench.far.get());
  REQUIRE(refused);
  CHECK(std::holds_alternative<wire::Refused>(refused->message));
  CHECK(bench.ended());
  CHECK(bench.messages.empty());
  CHECK(bench.near->dismissed());
}

TEST_CASE("F25: connection: descriptors of a client are closed and refused") {
  Bench bench;
  Result<channel::Pair> theirs = channel::make_pair();
  const int number = theirs->second.get();
  say(bench.far.get(), wire::make<wire::Detach>(1, 0), {&number, 1});
  theirs->second.reset();
  const std::optional<Got> refused = next_message(bench.loop, bench.far.get());
  REQUIRE(refused);
  CHECK(std::get<wire::Refused>(refused->message).text.view().find("descriptors") != std::string_view::npos);
  CHECK(bench.messages.empty());
  channel::Datagram nothing;
  CHECK_FALSE(channel::try_receive(theirs->first.get(), nothing).ok());  // nobody has the other end
}

TEST_CASE("F27: connection: a peer that does not read is dropped at the cap") {
  Bench bench;
  const auto message = wire::make<wire::Detached>(1, 1);
  std::size_t sent = 0;
  while (bench.near->open() && sent < 100'000) {
    bench.near->send(wire::bytes_of(message));
    ++sent;
  }
  CHECK(sent > ClientConnection::kMaxQueued);
  CHECK(sent < 100'000);
  CHECK(bench.reasons.at(0).find("does not read") != std::string::npos);
}

TEST_CASE("F27: connection: a refused peer that does not read its refusal is left after a while") {
  Bench bench;
  const auto message = wire::make<wire::Detached>(1, 1);
  for (int i = 0; i < 900; ++i)
    bench.near->send(wire::bytes_of(message));
  say(bench.far.get(), wire::make<wire::Detach>(1, 0));
  bench.near->close_after_sending("refused");
  int turns = 0;
  REQUIRE(turn_until(bench.loop, [&] {
    ++turns;
    return !bench.reasons.empty();
  }));
  CHECK(bench.reasons.at(0) == "refused");
  CHECK(turns < 10'000);  // what it says meanwhile is not looked at: nothing spins
  CHECK(bench.messages.empty());
}

TEST_CASE("F28: connection: one that talks without end gives others their turn") {
  Bench bench;
  for (std::size_t i = 0; i < 2 * ClientConnection::kTurn; ++i)
    say(bench.far.get(), wire::make<wire::Detach>(1, 0));
  bool others = false;
  std::size_t before_others = 0;
  Result<channel::Pair> pair = channel::make_pair();
  const auto other = bench.loop.on_readable(pair->first.get(), [&] {
    if (!others) before_others = bench.messages.size();
    others = true;
  });
  REQUIRE(::send(pair->second.get(), "x", 1, 0) == 1);
  REQUIRE(turn_until(bench.loop, [&] { return others; }));
  CHECK(before_others <= ClientConnection::kTurn);
  CHECK(turn_until(bench.loop, [&] { return bench.messages.size() == 2 * ClientConnection::kTurn; }));
}

TEST_CASE("connection: while it is paused nothing is read; resumed, nothing is lost") {
  Bench bench;
  bench.near->pause();
  say(bench.far.get(), wire::make<wire::Detach>(7, 0));
  turn_all(bench.loop);
  CHECK(bench.messages.empty());
  bench.near->resume();
  CHECK(turn_until(bench.loop, [&] { return bench.messages.size() == 1; }));
  bench.near->resume();  // once more changes nothing
  CHECK(bench.near->open());
}

TEST_CASE("F29: connection: one that says nothing is closed") {
  Bench bench;
  bench.near->close_unless(std::chrono::milliseconds(20));
  CHECK(bench.ended());
  Bench kept;
  kept.near->close_unless(std::chrono::milliseconds(20));
  kept.near->keep_open();
  kept.near->close_unless(std::chrono::milliseconds(40));
  bool later = false;
  const auto alarm = kept.loop.after(std::chrono::milliseconds(30), [&] { later = true; });
  REQUIRE(turn_until(kept.loop, [&] { return later; }));
  CHECK(kept.near->open());
}
