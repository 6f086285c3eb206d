// One socket of a client or of the CLI: messages in, messages out, in order.
//
// Owns: the socket and what waits to be sent. Promises: a GRANT's descriptors are sent one message at a time,
// the next when the client has answered for the last (rule 40: ten clients that do not read must not use up
// everybody's descriptors in flight); a peer that does not read is dropped at kMaxQueued messages (F27); one
// that talks without end gets its turn like all others (F28); what of a grant was never sent is reported,
// once for each request. Never: decides anything, believes an identity that a message claims, or blocks.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "broker/ids.hpp"
#include "broker/parted_ids.hpp"
#include "broker/server_loop.hpp"
#include "shm/channel.hpp"
#include "shm/fd.hpp"
#include "shm/peer.hpp"
#include "shm/wire.hpp"

namespace apportion {

class ClientConnection {
 public:
  static constexpr std::size_t kMaxQueued = 1024;
  static constexpr const char* kHungUp = "hung up";  // why it closed, where the peer did it
  static constexpr std::size_t kTurn = 64;           // messages read before others have their turn

  // One GRANT message.
  struct GrantPart {
    std::vector<std::byte> bytes;
    std::vector<Fd> fds;
    std::vector<ChunkId> ids;
  };

  class Owner {
   public:
    virtual ~Owner() = default;
    virtual void message(ClientConnection& from, const wire::Message& message) = 0;
    // Called once, whatever ends it; then grant_unsent for what had not left. The owner destroys the
    // connection later, not in here.
    virtual void closed(ClientConnection& connection, const std::string& why) = 0;
    virtual void grant_unsent(SessionId session, RequestId request, std::vector<ChunkId> ids,
                              const std::string& why) = 0;
  };

  // max_ids: how many chunks a list of this client may name.
  ClientConnection(Loop& loop, ConnectionId id, Fd socket, Peer peer, std::size_t max_ids, Owner& owner);
  ~ClientConnection();
  ClientConnection(const ClientConnection&) = delete;
  ClientConnection& operator=(const ClientConnection&) = delete;

  // Starts reading. False: the system has no room for one more watch (F30).
  [[nodiscard]] bool start();

  void send(std::span<const std::byte> message, std::vector<Fd> fds = {});
  void send_grant(SessionId session, RequestId request, std::vector<GrantPart> parts);
  // The client has acknowledged a GRANT message, either way.
  void grant_answered();
  // Reads nothing more, sends what waits, then closes; a peer that does not take it in time is left.
  void close_after_sending(const std::string& why);
  // Between the two nothing is read: a question must be answered before the next one.
  void pause();
  void resume();
  // Reads what has arrived, at most `most` messages: a process that is gone may have said goodbye before.
  void drain(std::size_t most);
  void close(const std::string& why);
  // After this long without another call, the connection is closed (F29).
  void close_unless(std::chrono::milliseconds idle);
  void keep_open() { idle_.reset(); }

  [[nodiscard]] ConnectionId id() const { return id_; }
  [[nodiscard]] const Peer& peer() const { return peer_; }
  // Before take_pidfd().
  [[nodiscard]] PidNamespace pid_namespace() const { return pid_namespace_of(peer_); }
  [[nodiscard]] Fd take_pidfd() { return std::move(peer_.pidfd); }
  [[nodiscard]] bool open() const { return socket_.valid(); }
  [[nodiscard]] bool dismissed() const { return close_when_empty_; }  // we told it to go

  std::optional<SessionId> session;  // set by the server when the broker welcomes it
  std::optional<wire::Hello> hello;  // waits for its LEASES
  PartedIds leases;                  // of that HELLO
  PartedIds releases;                // of one RELEASE
  std::uint64_t hello_request = 0;   // of the HELLO that waits for WELCOME or REFUSED

 private:
  struct OfGrant {
    SessionId session;
    RequestId request;
    std::vector<ChunkId> ids;
  };
  struct Outgoing {
    std::vector<std::byte> bytes;
    std::vector<Fd> fds;
    std::optional<OfGrant> grant;
  };
  void read_turn();
  void refuse_malformed(const channel::Datagram* datagram, const Error& why);
  void flush();
  void flush_later();
  void report_unsent(std::deque<Outgoing> unsent);

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
  bool paused_ = false;
  bool grant_in_flight_ = false;
  bool close_when_empty_ = false;
  std::string close_reason_;
};

}  // namespace apportion
