#include "broker/session_connection.hpp"

#include <algorithm>

#include "broker/log.hpp"
#include "shm/fault_point.hpp"

namespace apportion {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kRetry{10};               // where no event says that there is room again
constexpr milliseconds kFarewellPatience{1000};  // for a peer to take a last message

}  // namespace

ClientConnection::ClientConnection(Loop& loop, ConnectionId id, Fd socket, Peer peer, std::size_t max_ids,
                                   Owner& owner)
    : leases(max_ids),
      releases(max_ids),
      loop_(loop),
      id_(id),
      socket_(std::move(socket)),
      peer_(std::move(peer)),
      owner_(owner) {}

ClientConnection::~ClientConnection() = default;

bool ClientConnection::start() {
  readable_ = loop_.on_readable(socket_.get(), [this] { read_turn(); });
  return readable_ != nullptr;
}

// --- out

void ClientConnection::send(std::span<const std::byte> message, std::vector<Fd> fds) {
  if (!socket_) return;
  queue_.push_back({{message.begin(), message.end()}, std::move(fds), {}});
  if (queue_.size() > kMaxQueued) return close("it does not read its messages");  // F27
  flush();
}

void ClientConnection::send_grant(SessionId session_id, RequestId request, std::vector<GrantPart> parts) {
  std::deque<Outgoing> messages;
  for (GrantPart& part : parts) {
    messages.push_back(
        {std::move(part.bytes), std::move(part.fds), OfGrant{session_id, request, std::move(part.ids)}});
  }
  if (!socket_ || close_when_empty_) return report_unsent(std::move(messages));
  std::move(messages.begin(), messages.end(), std::back_inserter(queue_));
  if (queue_.size() > kMaxQueued) return close("it does not read its messages");
  flush();
}

void ClientConnection::grant_answered() {
  grant_in_flight_ = false;
  flush();
}

void ClientConnection::close_after_sending(const std::string& why) {
  if (!socket_ || close_when_empty_) return;
  close_when_empty_ = true;
  close_reason_ = why;
  // F27: it is heard no more, not waited for if it does not read, and gets no memory on its way out.
  readable_.reset();
  close_unless(kFarewellPatience);
  std::deque<Outgoing> last_words;
  std::deque<Outgoing> grants;
  for (Outgoing& message : queue_)
    (message.grant ? grants : last_words).push_back(std::move(message));
  queue_ = std::move(last_words);
  report_unsent(std::move(grants));
  flush();
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
      if (writable_) return;
      writable_ = loop_.on_writable(socket_.get(), [this] {
        writable_.reset();
        flush();
      });
      if (!writable_) flush_later();  // F30
      return;
    }
    // Other clients leave too many descriptors unread; no event says when that ends.
    if (*sent == channel::Sent::too_many_in_flight) return flush_later();
    grant_in_flight_ = grant_in_flight_ || next.grant.has_value();
    if (next.grant) APPORTION_FAULT_POINT("grant.after_send");
    queue_.pop_front();  // K3: closes the descriptors; what is in flight has references of its own
  }
  // Not from inside the caller's hands.
  if (socket_ && close_when_empty_ && queue_.empty() && !closing_)
    closing_ = loop_.after(std::chrono::nanoseconds(0), [this] { close(close_reason_); });
}

void ClientConnection::flush_later() {
  writable_ = loop_.after(kRetry, [this] {
    writable_.reset();
    flush();
  });
}

// --- in

void ClientConnection::read_turn() {
  drain(kTurn);
}

void ClientConnection::drain(std::size_t most) {
  channel::Datagram datagram;
  for (std::size_t i = 0; i < most && socket_ && !close_when_empty_ && !paused_; ++i) {
    Result<bool> got = channel::try_receive(socket_.get(), datagram);
    if (!got.ok() && got.error().code == Errc::disconnected) return close(kHungUp);
    if (!got.ok()) return refuse_malformed(nullptr, got.error());
    if (!*got) return;
    Result<wire::Message> message = wire::decode(datagram.bytes(), wire::Sender::client);
    // F25: no message of a client carries descriptors; what came is closed here.
    if (message.ok() && (!datagram.fds.empty() || datagram.fds_lost))
      message = Error{Errc::protocol, "a client's message carries no descriptors; send it without"};
    datagram.fds.clear();
    if (!message.ok()) return refuse_malformed(&datagram, message.error());
    owner_.message(*this, *message);
  }
}

// F24: it is told once what was wrong, and dropped; what it holds stays charged until it has ended.
void ClientConnection::refuse_malformed(const channel::Datagram* datagram, const Error& why) {
  auto refused = wire::make<wire::Refused>(0, 0);
  if (datagram != nullptr) {
    if (Result<wire::Header> header = wire::decode_header(datagram->bytes()); header.ok()) {
      refused.header.request_id = header->request_id;
      refused.refused_type = header->type;
    }
  }
  refused.code = static_cast<std::uint32_t>(why.code);
  refused.text.set(why.message);
  log::info("refused", {{"what", "message"},
                        {"pid", std::to_string(peer_.pid)},
                        {"uid", std::to_string(peer_.uid)},
                        {"why", why.message}});
  send(wire::bytes_of(refused));
  close_after_sending(why.message);
}

void ClientConnection::pause() {
  paused_ = true;
  readable_.reset();
}

void ClientConnection::resume() {
  if (!paused_ || !socket_ || close_when_empty_) return;
  paused_ = false;
  if (!start()) close("the broker is out of room");
}

// --- the end

void ClientConnection::close_unless(milliseconds idle) {
  idle_ = loop_.after(
      idle, [this] { close(close_when_empty_ ? close_reason_ : "it did not say what it wants in time"); });
}

void ClientConnection::close(const std::string& why) {
  if (!socket_) return;
  const std::string reason = why;  // may live in what is reset below
  readable_.reset();
  writable_.reset();
  idle_.reset();
  closing_.reset();
  socket_.reset();
  std::deque<Outgoing> unsent = std::exchange(queue_, {});
  owner_.closed(*this, reason);
  report_unsent(std::move(unsent));
}

void ClientConnection::report_unsent(std::deque<Outgoing> unsent) {
  std::vector<OfGrant> requests;
  for (const Outgoing& message : unsent) {
    if (!message.grant) continue;
    const auto same = std::find_if(requests.begin(), requests.end(), [&](const OfGrant& grant) {
      return grant.session == message.grant->session && grant.request == message.grant->request;
    });
    OfGrant& whole = same != requests.end()
                         ? *same
                         : requests.emplace_back(OfGrant{message.grant->session, message.grant->request, {}});
    whole.ids.insert(whole.ids.end(), message.grant->ids.begin(), message.grant->ids.end());
  }
  unsent.clear();  // the descriptors first: nobody is to have the chunks then
  for (OfGrant& grant : requests)
    owner_.grant_unsent(grant.session, grant.request, std::move(grant.ids), "the client hung up");
}

}  // namespace apportion
