#include "broker/server.hpp"

#include <sys/random.h>

#include <algorithm>
#include <chrono>

#include "broker/log.hpp"
#include "shm/socket_path.hpp"

namespace apportion {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kHelloPatience{1000};    // F29
constexpr milliseconds kStatusPatience{10000};  // between the questions of one reader
constexpr milliseconds kAcceptBackOff{100};     // F30: out of descriptors
constexpr std::size_t kAcceptTurn = 32;         // connections taken before others have their turn
// More than a socket's buffer can hold, and an end where a forked child goes on talking (F05).
constexpr std::size_t kLastWords = 1024;

Token draw_token() {
  Token token;
  const ssize_t got = getrandom(token.bytes.data(), token.bytes.size(), 0);
  APPORTION_CHECK(got == static_cast<ssize_t>(token.bytes.size()));
  return token;
}

SteadyNs steady_now() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return {std::chrono::duration_cast<std::chrono::nanoseconds>(since).count()};
}

std::vector<ChunkId> ids_of(std::span<const std::uint64_t> words) {
  std::vector<ChunkId> ids;
  for (const std::uint64_t word : words)
    ids.push_back({word});
  return ids;
}

template <typename M>
std::vector<ChunkId> listed(const M& message) {
  return ids_of({message.ids.data(), message.part.count});
}

wire::Refused refused_message(std::uint64_t request_id, wire::Type what, const Error& error) {
  auto refused = wire::make<wire::Refused>(request_id, 0);
  refused.code = static_cast<std::uint32_t>(error.code);
  refused.refused_type = static_cast<std::uint16_t>(what);
  refused.text.set(error.message);
  return refused;
}

}  // namespace

Server::Server(Loop& loop, int listening_socket, Limits limits, Sink& sink)
    : loop_(loop), listening_socket_(listening_socket), limits_(limits), sink_(sink) {}

void Server::start_accepting() {
  back_off_.reset();
  accepting_ = loop_.on_readable(listening_socket_, [this] { accept_waiting(); });
  if (!accepting_) back_off("no room to watch the socket");
}

void Server::accept_waiting() {
  for (std::size_t i = 0; i < kAcceptTurn; ++i) {
    if (connections_.size() + sessions_.size() >= limits_.most)
      return back_off(std::to_string(connections_.size()) + " connections and " +
                      std::to_string(sessions_.size()) +
                      " sessions are what the limit of open files allows (ulimit -n, LimitNOFILE=)");
    Result<Fd> socket = accept_from(listening_socket_);
    if (!socket.ok() && socket.error().code == Errc::busy) return;
    Status taken = socket.ok() ? take(*std::move(socket)) : Status(socket.error());
    if (!taken.ok() && taken.error().code != Errc::disconnected) return back_off(taken.error().message);
    in_trouble_ = false;
  }
}

// F30: those who wait keep their place in the kernel's queue; those who have a session go on.
void Server::back_off(const std::string& why) {
  if (!in_trouble_) log::warning("crowded", {{"what", "connections wait"}, {"why", why}});
  in_trouble_ = true;
  accepting_.reset();
  back_off_ = loop_.after(kAcceptBackOff, [this] { start_accepting(); });
}

Status Server::take(Fd socket) {
  // F09: a peer that has died by now costs no slot.
  Result<Peer> peer = identify_peer(socket.get());
  if (!peer.ok()) return peer.error();
  if (waiting_of(peer->uid) >= kMaxWaitingPerUid) {
    const auto refused = refused_message(
        0, wire::Type::hello,
        {Errc::busy, "uid " + std::to_string(peer->uid) + " has " + std::to_string(kMaxWaitingPerUid) +
                         " connections without a session; close some first"});
    (void)channel::try_send(socket.get(), wire::bytes_of(refused));
    return Done{};
  }
  const ConnectionId id{next_connection_++};
  auto connection = std::make_unique<ClientConnection>(loop_, id, std::move(socket), *std::move(peer),
                                                       limits_.max_ids, *this);
  if (!connection->start()) return Error{Errc::system, "no room to watch one more socket"};
  connection->close_unless(kHelloPatience);
  connections_.emplace(id.value, std::move(connection));
  return Done{};
}

std::size_t Server::waiting_of(uid_t uid) const {
  return static_cast<std::size_t>(
      std::count_if(connections_.begin(), connections_.end(), [uid](const auto& entry) {
        const ClientConnection& connection = *entry.second;
        return connection.open() && !connection.session && connection.peer().uid == uid;
      }));
}

bool Server::bind(ConnectionId id, SessionId session) {
  ClientConnection* connection = find(id);
  if (connection == nullptr || !connection->open()) return false;
  Session& bound = sessions_[session];
  const ConnectionId before = std::exchange(bound.connection, id);
  connection->keep_open();
  connection->session = session;
  if (!bound.watch)
    bound.watch = std::make_unique<ProcessWatch>(loop_, connection->take_pidfd(),
                                                 [this, session] { process_gone(session); });
  // The new connection was faster than the end of the old one, whose messages count no more.
  if (ClientConnection* old = find(before); old != nullptr) {
    old->session.reset();
    old->close("its session went on in another connection");
  }
  return true;
}

void Server::watch(SessionId session, pid_t pid, std::uint64_t start_time) {
  if (pid == 0) return;
  Result<Fd> pidfd = open_pidfd(pid, start_time);
  if (!pidfd.ok() && pidfd.error().code == Errc::not_found)
    return sink_.event(events::ProcessGone{session, steady_now()});
  if (!pidfd.ok())
    return log::warning("lost", {{"what", "watch of a client's process"},
                                 {"pid", std::to_string(pid)},
                                 {"why", pidfd.error().message}});
  sessions_[session].watch =
      std::make_unique<ProcessWatch>(loop_, *std::move(pidfd), [this, session] { process_gone(session); });
}

ClientConnection* Server::connection_of(SessionId session) {
  const auto found = sessions_.find(session);
  return found == sessions_.end() ? nullptr : find(found->second.connection);
}

ClientConnection* Server::find(ConnectionId id) {
  const auto found = connections_.find(id.value);
  return found == connections_.end() ? nullptr : found->second.get();
}

void Server::end(const actions::EndSession& over, std::uint64_t epoch) {
  const auto found = sessions_.find(over.session);
  if (found == sessions_.end()) return;
  const Session ended = std::move(found->second);
  sessions_.erase(found);
  ClientConnection* connection = find(ended.connection);
  if (connection == nullptr) return;
  connection->session.reset();
  if (ended.detach_request) {
    auto detached = wire::make<wire::Detached>(*ended.detach_request, epoch);
    detached.bytes = over.bytes.value;
    connection->send(wire::bytes_of(detached));
  } else if (!over.why.empty()) {
    auto refused = wire::make<wire::Refused>(0, epoch);
    refused.code = static_cast<std::uint32_t>(Errc::disconnected);
    refused.text.set(over.why);
    connection->send(wire::bytes_of(refused));
  }
  connection->close_after_sending("its session has ended");
}

void Server::refuse(ClientConnection& connection, std::uint64_t request_id, wire::Type what,
                    const Error& error) {
  log::info("refused", {{"what", wire::to_text(what)},
                        {"pid", std::to_string(connection.peer().pid)},
                        {"uid", std::to_string(connection.peer().uid)},
                        {"why", error.message}});
  connection.send(wire::bytes_of(refused_message(request_id, what, error)));
  connection.close_after_sending(error.message);
}

void Server::message(ClientConnection& from, const wire::Message& message) {
  if (const auto* status = std::get_if<wire::StatusRequest>(&message)) {
    if (!from.session) from.close_unless(kStatusPatience);
    from.pause();
    return sink_.status_wanted(from.id(), *status);
  }
  if (from.session) return in_session(from, *from.session, message);
  if (const auto* wanted = std::get_if<wire::Hello>(&message)) return hello(from, *wanted);
  if (const auto* part = std::get_if<wire::Leases>(&message); part != nullptr && from.hello)
    return leases(from, *part);
  const wire::Header& header = wire::header_of(message);
  refuse(from, header.request_id, static_cast<wire::Type>(header.type),
         {Errc::not_attached, "no session on this connection: send HELLO first"});
}

void Server::hello(ClientConnection& from, const wire::Hello& hello) {
  if (from.hello)
    return refuse(from, hello.header.request_id, wire::Type::hello,
                  {Errc::protocol, "a second HELLO where the LEASES of the first had to come"});
  // F19: before it takes a session whose pages it cannot read.
  if (Status readable = wire::check_layouts(hello.layouts); !readable.ok())
    return refuse(from, hello.header.request_id, wire::Type::hello, readable.error());
  if (hello.token.none()) return want_session(from, hello, {});
  from.hello = hello;  // its LEASES follow
}

void Server::leases(ClientConnection& from, const wire::Leases& leases) {
  std::vector<ChunkId> ids;
  for (std::size_t i = 0; i < leases.part.count; ++i)
    ids.push_back({leases.entries[i].chunk_id});
  const Result<bool> complete = from.leases.add(leases.header.request_id, leases.part, ids);
  if (!complete.ok()) return refuse(from, leases.header.request_id, wire::Type::leases, complete.error());
  if (!*complete) return;
  const wire::Hello hello = *from.hello;
  from.hello.reset();
  want_session(from, hello, from.leases.take());
}

void Server::want_session(ClientConnection& from, const wire::Hello& hello, std::vector<ChunkId> claimed) {
  from.hello_request = hello.header.request_id;
  events::SessionWanted wanted;
  wanted.connection = from.id();
  wanted.job = hello.job.view();
  wanted.peer = {from.peer().uid, {}, from.peer().pid, from.peer().start_time, from.pid_namespace()};
  wanted.peer.gids.assign(from.peer().groups.begin(), from.peer().groups.end());
  wanted.peer.gids.push_back(from.peer().gid);
  wanted.reclaimable = (hello.flags & wire::Hello::kReclaimable) != 0;
  wanted.label = hello.label.view();
  wanted.knows_slabs = hello.header.minor >= 1;  // of major 1, or it would not be here
  wanted.fresh = draw_token();
  if (!hello.token.none()) {
    wanted.resume = hello.token;
    wanted.claimed = std::move(claimed);
    wanted.claimed_epoch = hello.header.epoch;
  }
  sink_.event(wanted);
}

void Server::in_session(ClientConnection& from, SessionId session, const wire::Message& message) {
  const RequestId request{wire::header_of(message).request_id};
  if (const auto* wanted = std::get_if<wire::Request>(&message)) {
    sink_.event(events::Request{session, request, Bytes{wanted->min_bytes}, Bytes{wanted->want_bytes},
                                (wanted->flags & wire::Request::kExact) != 0,
                                (wanted->flags & wire::Request::kMayWait) != 0,
                                (wanted->flags & wire::Request::kAhead) != 0});
  } else if (const auto* ack = std::get_if<wire::GrantAck>(&message)) {
    from.grant_answered();
    sink_.event(events::Acked{session, request, listed(*ack)});
  } else if (const auto* nack = std::get_if<wire::GrantNack>(&message)) {
    from.grant_answered();
    sink_.event(events::Nacked{session, request, listed(*nack)});
  } else if (const auto* part = std::get_if<wire::Release>(&message)) {
    release(from, session, *part);
  } else if (std::holds_alternative<wire::Reclaimed>(message)) {
    sink_.event(events::Reclaimed{session, request});
  } else if (std::holds_alternative<wire::Detach>(message)) {
    sessions_.at(session).detach_request = request.value;
    sink_.event(events::Detached{session});
  } else {
    const wire::Header& header = wire::header_of(message);
    refuse(from, header.request_id, static_cast<wire::Type>(header.type),
           {Errc::protocol,
            wire::to_text(static_cast<wire::Type>(header.type)) + " is not for an attached session"});
  }
}

// One answer for the whole list, after its last part (docs/protocol.md).
void Server::release(ClientConnection& from, SessionId session, const wire::Release& release) {
  const std::uint64_t request = release.header.request_id;
  const Result<bool> complete = from.releases.add(request, release.part, listed(release));
  if (!complete.ok()) return refuse(from, request, wire::Type::release, complete.error());
  if (*complete) sink_.event(events::Released{session, {request}, from.releases.take()});
}

void Server::process_gone(SessionId session) {
  if (ClientConnection* connection = connection_of(session)) {
    connection->resume();
    connection->drain(kLastWords);
  }
  if (!sessions_.contains(session)) return;  // it had said goodbye
  sink_.event(events::ProcessGone{session, steady_now()});
}

void Server::grant_unsent(SessionId session, RequestId request, std::vector<ChunkId> ids,
                          const std::string& why) {
  sink_.event(events::GrantUnsent{session, request, std::move(ids), why});
}

void Server::closed(ClientConnection& connection, const std::string& why) {
  const ConnectionId id = connection.id();
  const std::optional<SessionId> session = connection.session;
  // F27. What was refused is in the log already, and a hang-up is nothing yet.
  if (session && why != ClientConnection::kHungUp && !connection.dismissed())
    log::warning("lost", {{"what", "connection"},
                          {"pid", std::to_string(connection.peer().pid)},
                          {"uid", std::to_string(connection.peer().uid)},
                          {"why", why}});
  if (const auto found = session ? sessions_.find(*session) : sessions_.end();
      found != sessions_.end() && found->second.connection == id) {
    found->second.connection = {};
    sink_.event(events::HungUp{*session});
  }
  // After everything on the stack that may still use it.
  loop_.post([this, id] { connections_.erase(id.value); });
}

}  // namespace apportion
