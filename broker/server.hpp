// Connections and sessions: accepts, identifies, and turns messages into events for the core.
//
// Owns: the connections, and per session the watch of its process. Promises: a session outlives its
// connection; a process that is gone is heard out (its last messages count) before its death is reported.
// Never: decides about memory. Everything a client can send passes through here, after wire::decode.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>

#include "broker/events.hpp"
#include "broker/session_connection.hpp"
#include "broker/watch.hpp"

namespace apportion {

class Server final : public ClientConnection::Owner {
 public:
  class Sink {
   public:
    virtual ~Sink() = default;
    virtual void event(const Event& event) = 0;
    virtual void status_wanted(ConnectionId from, const wire::StatusRequest& request) = 0;
    [[nodiscard]] virtual Bytes charged(SessionId session) const = 0;
  };

  // Descriptors that one connection, or one session, may need: its socket or pidfd, copies for the loop, its page.
  static constexpr std::size_t kFdsEach = 4;

  // `listening_socket` outlives the server. With `most` connections and sessions together, whoever comes waits in
  // the socket's queue (F30).
  Server(Loop& loop, int listening_socket, Sink& sink, std::size_t most);

  void start_accepting();

  // A session is made or resumed for a connection. False: the connection is gone already.
  bool bind(ConnectionId connection, SessionId session);
  [[nodiscard]] ClientConnection* connection_of(SessionId session);
  [[nodiscard]] ClientConnection* find(ConnectionId id);
  // Answers a DETACH, or says why, and closes. The process is no longer watched.
  void end(SessionId session, const std::string& why, std::uint64_t epoch);
  void refuse(ClientConnection& connection, std::uint64_t request_id, wire::Type what, const Error& error);

 private:
  struct Session {
    ConnectionId connection{};  // 0: none now
    std::unique_ptr<ProcessWatch> watch;
    std::uint64_t detach_request = 0;  // of a DETACH that waits for its answer
    bool detaching = false;
    Bytes held;
  };

  void accept_waiting();
  void pause_accepting();
  void message(ClientConnection& from, const wire::Message& message) override;
  void grant_unsent(const ClientConnection::GrantPart& part, const std::string& why) override;
  void closed(ClientConnection& connection, const std::string& why) override;
  void hello(ClientConnection& from, const wire::Hello& hello);
  void leases(ClientConnection& from, const wire::Leases& leases);
  void want_session(ClientConnection& from, const wire::Hello& hello);
  void in_session(ClientConnection& from, SessionId session, const wire::Message& message);
  void process_gone(SessionId session);

  Loop& loop_;
  int listening_socket_;
  Sink& sink_;
  std::size_t most_;
  bool crowded_ = false;
  std::unique_ptr<Loop::Watch> accepting_;
  std::unique_ptr<Loop::Watch> back_off_;
  std::unordered_map<std::uint64_t, std::unique_ptr<ClientConnection>> connections_;
  std::unordered_map<SessionId, Session> sessions_;
  std::uint64_t next_connection_ = 1;
};

}  // namespace apportion
