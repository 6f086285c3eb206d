#include "broker/server.hpp"

#include <sys/random.h>

#include <chrono>

#include "broker/log.hpp"
#include "shm/socket_path.hpp"

namespace apportion {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kHelloPatience{1000};    // F29
constexpr milliseconds kStatusPatience{10000};  // between the questions of one reader
constexpr std::size_t kMostClaimed = 524'288;
constexpr milliseconds kAcceptBackOff{100};     // F30: out of descriptors

Token draw_token() {
  Token token;
  const ssize_t got = getrandom(token.bytes.data(), token.bytes.size(), 0);
  APPORTION_CHECK(got == static_cast<ssize_t>(token.bytes.size()));
  return token;
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

}  // namespace

Server::Server(Loop& loop, int listening_socket, Sink& sink, std::size_t most)
    : loop_(loop), listening_socket_(listening_socket), sink_(sink), most_(most) {}

void Server::start_accepting() {
  accepting_ = loop_.on_readable(listening_socket_, [this] { accept_waiting(); });
}

// F30: what is here already needs its descriptors; the next try is soon.
void Server::pause_accepting() {
  accepting_.reset();
  back_off_ = loop_.after(kAcceptBackOff, [this] { start_accepting(); });
}

void Server::accept_waiting() {
  while (true) {
    const bool crowded = connections_.size() + sessions_.size() >= most_;
    if (crowded && !crowded_)
      log::warning("crowded", {{"connections", std::to_string(connections_.size())},
                               {"sessions", std::to_string(sessions_.size())},
                               {"remedy", "raise the limit of open files (ulimit -n, LimitNOFILE=)"}});
    crowded_ = crowded;
    if (crowded) return pause_accepting();
    Result<Fd> socket = accept_from(listening_socket_);
    if (!socket.ok()) {
      if (socket.error().code == Errc::busy) return;
      log::error("refused", {{"what", "connection"}, {"why", socket.error().message}});
      return pause_accepting();
    }
    // F09: a peer that has died by now costs no slot.
    Result<Peer> peer = identify_peer(socket->get());
    if (!peer.ok()) continue;
    const ConnectionId id{next_connection_++};
    auto connection =
        std::make_unique<ClientConnection>(loop_, id, *std::move(socket), *std::move(peer), *this);
    connection->close_unless(kHelloPatience);
    connections_.emplace(id.value, std::move(connection));
  }
}

bool Server::bind(ConnectionId id, SessionId session) {
  ClientConnection* connection = find(id);
  if (connection == nullptr) return false;
  connection->keep_open();
  connection->session = session;
  Session& bound = sessions_[session];
  bound.connection = id;
  if (!bound.watch)
    bound.watch = std::make_unique<ProcessWatch>(loop_, connection->take_pidfd(),
                                                 [this, session] { process_gone(session); });
  return true;
}

ClientConnection* Server::connection_of(SessionId session) {
  const auto found = sessions_.find(session);
  return found == sessions_.end() ? nullptr : find(found->second.connection);
}

ClientConnection* Server::find(ConnectionId id) {
  const auto found = connections_.find(id.value);
  return found == connections_.end() ? nullptr : found->second.get();
}

void Server::end(SessionId session, const std::string& why, std::uint64_t epoch) {
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return;
  const Session ended = std::move(found->second);
  sessions_.erase(found);
  ClientConnection* connection = find(ended.connection);
  if (connection == nullptr) return;
  connection->session.reset();
  if (ended.detaching) {
    auto detached = wire::make<wire::Detached>(ended.detach_request, epoch);
    detached.bytes = ended.held.value;
    connection->send(wire::bytes_of(detached));
  } else if (!why.empty()) {
    auto refused = wire::make<wire::Refused>(0, epoch);
    refused.code = static_cast<std::uint32_t>(Errc::disconnected);
    refused.text.set(why);
    connection->send(wire::bytes_of(refused));
  }
  connection->close_after_sending();
}

void Server::refuse(ClientConnection& connection, std::uint64_t request_id, wire::Type what,
                    const Error& error) {
  auto refused = wire::make<wire::Refused>(request_id, 0);
  refused.code = static_cast<std::uint32_t>(error.code);
  refused.refused_type = static_cast<std::uint16_t>(what);
  refused.text.set(error.message);
  connection.send(wire::bytes_of(refused));
  connection.close_after_sending();
}

void Server::message(ClientConnection& from, const wire::Message& message) {
  if (const auto* status = std::get_if<wire::StatusRequest>(&message)) {
    if (!from.session) from.close_unless(kStatusPatience);
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
  // F19: before it takes a session whose pages it cannot read.
  if (Status readable = wire::check_layouts(hello.layouts); !readable.ok())
    return refuse(from, hello.header.request_id, wire::Type::hello, readable.error());
  if (hello.token.none()) return want_session(from, hello);
  from.hello = hello;  // its LEASES follow
}

void Server::leases(ClientConnection& from, const wire::Leases& leases) {
  for (std::size_t i = 0; i < leases.part.count; ++i)
    from.claimed.push_back({leases.entries[i].chunk_id});
  // More than any device can export (rule 39) is no list of leases.
  if (from.claimed.size() > kMostClaimed)
    return refuse(from, leases.header.request_id, wire::Type::leases,
                  {Errc::protocol, "a session cannot hold so many leases; list those it holds"});
  if (leases.part.part + 1 < leases.part.parts) return;
  const wire::Hello hello = *from.hello;
  from.hello.reset();
  want_session(from, hello);
}

void Server::want_session(ClientConnection& from, const wire::Hello& hello) {
  from.hello_request = hello.header.request_id;
  events::SessionWanted wanted;
  wanted.connection = from.id();
  wanted.job = hello.job.view();
  wanted.peer = {from.peer().uid, {}, from.peer().pid, from.peer().start_time};
  wanted.peer.gids.assign(from.peer().groups.begin(), from.peer().groups.end());
  wanted.peer.gids.push_back(from.peer().gid);
  wanted.reclaimable = (hello.flags & wire::Hello::kReclaimable) != 0;
  wanted.label = hello.label.view();
  wanted.fresh = draw_token();
  if (!hello.token.none()) {
    wanted.resume = hello.token;
    wanted.claimed = std::move(from.claimed);
    wanted.claimed_epoch = hello.header.epoch;
  }
  sink_.event(wanted);
}

void Server::in_session(ClientConnection& from, SessionId session, const wire::Message& message) {
  const RequestId request{wire::header_of(message).request_id};
  if (const auto* wanted = std::get_if<wire::Request>(&message)) {
    sink_.event(events::Request{session, request, Bytes{wanted->min_bytes}, Bytes{wanted->want_bytes},
                                (wanted->flags & wire::Request::kExact) != 0,
                                (wanted->flags & wire::Request::kMayWait) != 0});
  } else if (const auto* ack = std::get_if<wire::GrantAck>(&message)) {
    from.grant_answered();
    sink_.event(events::Acked{session, request, listed(*ack)});
  } else if (const auto* nack = std::get_if<wire::GrantNack>(&message)) {
    from.grant_answered();
    sink_.event(events::Nacked{session, request, listed(*nack)});
  } else if (const auto* release = std::get_if<wire::Release>(&message)) {
    sink_.event(events::Released{session, request, listed(*release)});
  } else if (std::holds_alternative<wire::Detach>(message)) {
    Session& leaving = sessions_.at(session);
    leaving.detaching = true;
    leaving.detach_request = request.value;
    leaving.held = sink_.charged(session);
    sink_.event(events::Detached{session});
  } else {
    const wire::Header& header = wire::header_of(message);
    refuse(from, header.request_id, static_cast<wire::Type>(header.type),
           {Errc::protocol,
            wire::to_text(static_cast<wire::Type>(header.type)) + " is not for an attached session"});
  }
}

void Server::process_gone(SessionId session) {
  if (ClientConnection* connection = connection_of(session)) connection->drain();
  if (!sessions_.contains(session)) return;  // it had said goodbye
  sink_.event(events::ProcessGone{session});
}

void Server::grant_unsent(const ClientConnection::GrantPart& part, const std::string& why) {
  sink_.event(events::GrantUnsent{part.session, part.request, part.ids, why});
}

void Server::closed(ClientConnection& connection, const std::string& why) {
  const std::optional<SessionId> session = connection.session;
  const ConnectionId id = connection.id();
  if (session) {
    const auto found = sessions_.find(*session);
    // A newer connection may have taken the session over.
    if (found != sessions_.end() && found->second.connection == id) {
      found->second.connection = {};
      log::info("hung_up", {{"session", std::to_string(session->value)}, {"why", why}});
      sink_.event(events::HungUp{*session});
    }
  }
  // After everything on the stack that may still use it.
  loop_.post([this, id] { connections_.erase(id.value); });
}

}  // namespace apportion
