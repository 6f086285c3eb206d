#include "broker/session_connection.hpp"

#include "shm/fault_point.hpp"

namespace apportion {
namespace {

constexpr std::chrono::milliseconds kLastWordsPatience{1000};

}  // namespace

ClientConnection::ClientConnection(Loop& loop, ConnectionId id, Fd socket, Peer peer, Owner& owner)
    : loop_(loop), id_(id), socket_(std::move(socket)), peer_(std::move(peer)), owner_(owner) {
  readable_ = loop_.on_readable(socket_.get(), [this] { drain(); });
}

ClientConnection::~ClientConnection() = default;

void ClientConnection::send(std::span<const std::byte> message, std::vector<Fd> fds,
                            std::optional<GrantPart> grant) {
  if (!socket_ || (grant && close_when_empty_)) {
    if (grant) owner_.grant_unsent(*grant, "the client hung up");
    return;
  }
  queue_.push_back({{message.begin(), message.end()}, std::move(fds), std::move(grant)});
  if (queue_.size() > kMaxQueued) return close("it does not read its messages");  // F27
  flush();
}

void ClientConnection::send_borrowed(std::span<const std::byte> message, std::span<const int> fds) {
  if (!socket_) return;
  // Nothing was queued before a WELCOME, and a fresh socket has room: it is sent now or the peer is gone.
  Result<channel::Sent> sent = channel::try_send(socket_.get(), message, fds);
  if (!sent.ok()) return close(sent.error().message);
  if (*sent != channel::Sent::yes) close("no room for the WELCOME: descriptors in flight are used up");
}

void ClientConnection::grant_answered() {
  grant_in_flight_ = false;
  flush();
}

void ClientConnection::close_after_sending() {
  if (close_when_empty_ || !socket_) return;
  close_when_empty_ = true;
  // F27: it is heard no more, not waited for if it does not read, and gets no memory on its way out.
  readable_.reset();
  idle_ = loop_.after(kLastWordsPatience, [this] { close("it did not read the last words"); });
  drop_grants("the connection is ending");
  flush();
}

void ClientConnection::drop_grants(const std::string& why) {
  std::vector<GrantPart> unsent;
  for (const Outgoing& message : queue_)
    if (message.grant) unsent.push_back(*message.grant);
  std::erase_if(queue_, [](const Outgoing& message) { return message.grant.has_value(); });
  for (const GrantPart& part : unsent)
    owner_.grant_unsent(part, why);
}

void ClientConnection::close_unless(std::chrono::milliseconds idle) {
  idle_ = loop_.after(idle, [this] { close("it did not say what it wants in time"); });
}

void ClientConnection::drain() {
  channel::Datagram datagram;
  while (socket_ && !close_when_empty_) {
    Result<bool> got = channel::try_receive(socket_.get(), datagram);
    if (!got.ok() && got.error().code == Errc::disconnected) return close("hung up");
    if (got.ok() && !*got) return;
    Result<wire::Message> message =
        got.ok() ? wire::decode(datagram.bytes(), wire::Sender::client) : Result<wire::Message>(got.error());
    // F25: no message of a client carries descriptors; what came is closed here.
    if (message.ok() && (!datagram.fds.empty() || datagram.fds_lost))
      message = Error{Errc::protocol, "a client's message carries no descriptors; send it without"};
    datagram.fds.clear();
    if (message.ok()) {
      owner_.message(*this, *message);
      continue;
    }
    // F24: it is told once what was wrong, and dropped; what it holds stays charged until it has ended.
    auto refused = wire::make<wire::Refused>(0, 0);
    if (got.ok()) {
      if (Result<wire::Header> header = wire::decode_header(datagram.bytes()); header.ok()) {
        refused.header.request_id = header->request_id;
        refused.refused_type = header->type;
      }
    }
    refused.code = static_cast<std::uint32_t>(message.error().code);
    refused.text.set(message.error().message);
    send(wire::bytes_of(refused));
    close_after_sending();
  }
}

void ClientConnection::flush() {
  while (socket_ && !queue_.empty()) {
    Outgoing& next = queue_.front();
    if (next.grant && grant_in_flight_) return;
    std::vector<int> fds;
    for (const Fd& fd : next.fds)
      fds.push_back(fd.get());
    if (next.grant) APPORTION_FAULT_POINT("grant.before_send");
    Result<channel::Sent> sent = channel::try_send(socket_.get(), next.bytes, fds);
    if (!sent.ok()) return close(sent.error().message);
    if (*sent == channel::Sent::would_block) {
      if (!writable_) {
        writable_ = loop_.on_writable(socket_.get(), [this] {
          writable_.reset();
          flush();
        });
      }
      return;
    }
    // Other clients leave too many descriptors unread; no event says when that ends.
    if (*sent == channel::Sent::too_many_in_flight) return send_later(std::chrono::milliseconds(10));
    grant_in_flight_ = grant_in_flight_ || next.grant.has_value();
    if (next.grant) APPORTION_FAULT_POINT("grant.after_send");
    queue_.pop_front();  // K3: closes the descriptors; what is in flight has references of its own
  }
  // Not from inside the caller's hands: closed() may destroy this.
  if (socket_ && close_when_empty_ && queue_.empty() && !closing_)
    closing_ = loop_.after(std::chrono::nanoseconds(0), [this] { close("done"); });
}

void ClientConnection::send_later(std::chrono::milliseconds delay) {
  writable_ = loop_.after(delay, [this] {
    writable_.reset();
    flush();
  });
}

void ClientConnection::close(const std::string& why) {
  if (!socket_) return;
  readable_.reset();
  writable_.reset();
  idle_.reset();
  closing_.reset();
  socket_.reset();
  const std::deque<Outgoing> unsent = std::exchange(queue_, {});
  for (const Outgoing& message : unsent)
    if (message.grant) owner_.grant_unsent(*message.grant, "the client hung up");
  owner_.closed(*this, why);
}

}  // namespace apportion
