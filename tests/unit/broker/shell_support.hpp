// What the tests of the broker's shell share: a loop that is turned until something is true, and the peer's
// end of a socket.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <vector>

#include "broker/server_loop.hpp"
#include "shm/channel.hpp"
#include "shm/wire.hpp"
#include "tests/support/catch.hpp"

namespace apportion::testing {

inline bool turn_until(Loop& loop, const std::function<bool()>& done) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!done()) {
    if (std::chrono::steady_clock::now() > end) return false;
    loop.turn(std::chrono::milliseconds(5));
  }
  return true;
}

// Everything that is ready now, and what follows from it.
inline void turn_all(Loop& loop) {
  for (int i = 0; i < 50; ++i)
    loop.turn(std::chrono::milliseconds(0));
}

struct Got {
  wire::Message message;
  std::vector<Fd> fds;
};

// The next message at the far end, while the loop turns; nothing at the end of the stream.
inline std::optional<Got> next_message(Loop& loop, int socket, wire::Sender sender = wire::Sender::broker) {
  std::optional<Got> got;
  bool ended = false;
  channel::Datagram datagram;
  const bool in_time = turn_until(loop, [&] {
    const Result<bool> received = channel::try_receive(socket, datagram);
    ended = !received.ok();
    if (ended || !*received) return ended;
    Result<wire::Message> message = wire::decode(datagram.bytes(), sender);
    REQUIRE(message.ok());
    got = Got{*message, std::move(datagram.fds)};
    return true;
  });
  REQUIRE(in_time);
  return got;
}

template <typename M>
void say(int socket, const M& message, std::span<const int> fds = {}) {
  const Status sent = channel::send(socket, wire::bytes_of(message), fds,
                                    std::chrono::steady_clock::now() + std::chrono::seconds(20));
  REQUIRE(sent.ok());
}

}  // namespace apportion::testing
