// A client without the library: a socket, and whatever bytes a test wants the broker to see.
//
// Promises: nothing is checked, nothing is acknowledged, unless the test says so.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "shm/channel.hpp"
#include "shm/wire.hpp"
#include "tests/support/process.hpp"

namespace apportion::testing {

class RawClient {
 public:
  // Fails the test where nobody listens.
  explicit RawClient(const std::string& socket_path);

  [[nodiscard]] int socket() const { return socket_.get(); }
  // Any bytes, any descriptors. False: the broker has hung up.
  bool send_bytes(std::span<const std::byte> bytes, std::span<const int> fds = {});
  template <typename M>
  bool send(const M& message, std::span<const int> fds = {}) {
    return send_bytes(wire::bytes_of(message), fds);
  }
  // The next message and its descriptors; nothing at the end of the stream, or when the time is up.
  struct Received {
    wire::Message message;
    std::vector<Fd> fds;
  };
  [[nodiscard]] std::optional<Received> receive(std::chrono::milliseconds patience = kPatience);
  // True when the broker closed the connection.
  [[nodiscard]] bool hung_up(std::chrono::milliseconds patience = kPatience);

  // HELLO and its WELCOME; fails the test on anything else. The pages are kept.
  wire::Welcome hello(const std::string& job);
  [[nodiscard]] const std::vector<Fd>& pages() const { return pages_; }
  // REQUEST and the answer to it.
  [[nodiscard]] Received request(Bytes bytes);
  [[nodiscard]] std::uint64_t next_request() { return next_request_++; }

 private:
  Fd socket_;
  std::vector<Fd> pages_;
  std::uint64_t next_request_ = 1;
  std::uint64_t epoch_ = 0;
};

// Its HELLO, for a test to spoil.
[[nodiscard]] wire::Hello hello_message(const std::string& job);

}  // namespace apportion::testing
