// One socket of a client or of the CLI: messages in, messages out, in order.
//
// Owns: the socket and what waits to be sent. Promises: a GRANT's descriptors are sent one message at a time,
// the next when the client has answered for the last (rule 40: ten clients that do not read must not use up
// everybody's descriptors in flight); a peer that does not read is dropped at kMaxQueued messages (F27), and
// for each grant it never saw the owner is told. Never: decides anything, believes an identity that a message
// claims, or blocks.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "broker/ids.hpp"
#include "broker/server_loop.hpp"
#include "shm/channel.hpp"
#include "shm/fd.hpp"
#include "shm/peer.hpp"
#include "shm/wire.hpp"

namespace apportion {

class ClientConnection {
 public:
  static constexpr std::size_t kMaxQueued = 1024;

  // What a GRANT message carries, to be reported if it is never sent.
  struct GrantPart {
    SessionId session;
    RequestId request;
    std::vector<ChunkId> ids;
  };

  class Owner {
   public:
    virtual ~Owner() = default;
    virtual void message(ClientConnection& from, const wire::Message& message) = 0;
    virtual void grant_unsent(const GrantPart& part, const std::string& why) = 0;
    // Called once; the connection may be destroyed in it.
    virtual void closed(ClientConnection& connection, const std::string& why) = 0;
  };

  ClientConnection(Loop& loop, ConnectionId id, Fd socket, Peer peer, Owner& owner);
  ~ClientConnection();
  ClientConnection(const ClientConnection&) = delete;
  ClientConnection& operator=(const ClientConnection&) = delete;

  void send(std::span<const std::byte> message, std::vector<Fd> fds = {},
            std::optional<GrantPart> grant = {});
  // WELCOME's pages stay the broker's own descriptors.
  void send_borrowed(std::span<const std::byte> message, std::span<const int> fds);
  // The client has acknowledged a GRANT message, either way.
  void grant_answered();
  // Sends what waits, then closes.
  void close_after_sending();
  // Reads everything that has arrived: a process that is gone may have said goodbye before.
  void drain();
  void close(const std::string& why);
  // After this long without another call, the connection is closed (F29).
  void close_unless(std::chrono::milliseconds idle);
  void keep_open() { idle_.reset(); }

  [[nodiscard]] ConnectionId id() const { return id_; }
  [[nodiscard]] const Peer& peer() const { return peer_; }
  [[nodiscard]] Fd take_pidfd() { return std::move(peer_.pidfd); }

  std::optional<SessionId> session;  // set by the server when the broker welcomes it
  std::vector<ChunkId> claimed;      // gathered from LEASES
  std::optional<wire::Hello> hello;  // waits for its LEASES
  std::uint64_t hello_request = 0;   // of the HELLO that waits for WELCOME or REFUSED

 private:
  struct Outgoing {
    std::vector<std::byte> bytes;
    std::vector<Fd> fds;
    std::optional<GrantPart> grant;
  };
  void flush();
  void drop_grants(const std::string& why);
  void send_later(std::chrono::milliseconds delay);

  Loop& loop_;
  ConnectionId id_;
  Fd socket_;
  Peer peer_;
  Owner& owner_;
  std::unique_ptr<Loop::Watch> readable_;
  std::unique_ptr<Loop::Watch> writable_;
  std::unique_ptr<Loop::Watch> idle_;
  std::unique_ptr<Loop::Watch> closing_;
  std::deque<Outgoing> queue_;
  bool grant_in_flight_ = false;
  bool close_when_empty_ = false;
};

}  // namespace apportion
