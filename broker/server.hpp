// Connections and sessions: accepts, identifies, and turns messages into events for the core.
//
// Owns: the connections, and per session the watch of its process. Promises: a session outlives its
// connection; a process that is gone is heard out (its last messages count) before its death is reported; a
// user has at most kMaxWaitingPerUid connections without a session, so that nobody can take up all
// descriptors (F28). Never: decides about memory. Everything a client can send passes through here, after
// wire::decode.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>

#include "broker/actions.hpp"
#include "broker/events.hpp"
#include "broker/session_connection.hpp"
#include "broker/watch.hpp"

namespace apportion {

class Server final : public ClientConnection::Owner {
 public:
  static constexpr std::size_t kMaxWaitingPerUid = 128;

  class Sink {
   public:
    virtual ~Sink() = default;
    virtual void event(const Event& event) = 0;
    // The connection is paused until the question is answered.
    virtual void status_wanted(ConnectionId from, const wire::StatusRequest& request) = 0;
  };

  // Descriptors that one connection, or one session, may need: socket or pidfd, a copy for the loop, its
  // pages.
  static constexpr std::size_t kFdsEach = 4;

  struct Limits {
    std::size_t most = 0;  // connections and sessions together; then whoever comes waits in the queue (F30)
    std::size_t max_ids = 0;  // how many chunks there can be
  };

  // `listening_socket` outlives the server.
  Server(Loop& loop, int listening_socket, Limits limits, Sink& sink);

  void start_accepting();
  // A connection that is there already. Errc::disconnected: its process has died by now (F09).
  [[nodiscard]] Status take(Fd socket);

  // A session is made or resumed for a connection. False: the connection is gone already.
  bool bind(ConnectionId connection, SessionId session);
  // A session without a connection: its process's end is reported as any other's, at once where it has ended
  // by now. A process that we cannot see (F10) is taken to live.
  void watch(SessionId session, pid_t pid, std::uint64_t start_time);
  [[nodiscard]] ClientConnection* connection_of(SessionId session);
  [[nodiscard]] ClientConnection* find(ConnectionId id);
  // Answers a DETACH, or says why, and closes. The process is no longer watched.
  void end(const actions::EndSession& ended, std::uint64_t epoch);
  // REFUSED, a line in the log, and the end of the connection.
  void refuse(ClientConnection& connection, std::uint64_t request_id, wire::Type what, const Error& error);

 private:
  struct Session {
    ConnectionId connection{};  // 0: none now
    std::unique_ptr<ProcessWatch> watch;
    std::optional<std::uint64_t> detach_request;  // of a DETACH that waits for its answer
  };

  void accept_waiting();
  void back_off(const std::string& why);
  [[nodiscard]] std::size_t waiting_of(uid_t uid) const;
  void message(ClientConnection& from, const wire::Message& message) override;
  void closed(ClientConnection& connection, const std::string& why) override;
  void grant_unsent(SessionId session, RequestId request, std::vector<ChunkId> ids,
                    const std::string& why) override;
  void hello(ClientConnection& from, const wire::Hello& hello);
  void leases(ClientConnection& from, const wire::Leases& leases);
  void want_session(ClientConnection& from, const wire::Hello& hello, std::vector<ChunkId> claimed);
  void in_session(ClientConnection& from, SessionId session, const wire::Message& message);
  void release(ClientConnection& from, SessionId session, const wire::Release& release);
  void process_gone(SessionId session);

  Loop& loop_;
  int listening_socket_;
  Limits limits_;
  Sink& sink_;
  std::unique_ptr<Loop::Watch> accepting_;
  std::unique_ptr<Loop::Watch> back_off_;
  bool in_trouble_ = false;  // said once
  std::unordered_map<std::uint64_t, std::unique_ptr<ClientConnection>> connections_;
  std::unordered_map<SessionId, Session> sessions_;
  std::uint64_t next_connection_ = 1;
};

}  // namespace apportion
