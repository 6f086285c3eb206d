#include "broker/keeper_link.hpp"

#include <chrono>

#include "shm/wire.hpp"

namespace apportion {
namespace {

constexpr std::chrono::seconds kPatience{10};
constexpr std::chrono::milliseconds kRetry{10};  // where no event says that there is room again

channel::Deadline soon() {
  return std::chrono::steady_clock::now() + kPatience;
}

template <typename M>
M list_of(std::span<const ChunkId> ids, std::uint64_t request) {
  M message = wire::make<M>(request, 0);
  message.part.count = static_cast<std::uint32_t>(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i)
    message.entries[i] = {.id = ids[i].value, .kind = static_cast<std::uint32_t>(wire::KeptKind::chunk)};
  return message;
}

Status result_of(const wire::Ack& ack) {
  if (ack.code == 0) return Done{};
  return Error{
      static_cast<Errc>(ack.code - 1),
      "the keeper could not keep the descriptors of the pool's chunks: raise its limit of open files "
      "(ulimit -n, or LimitNOFILE= under systemd), or use larger chunks"};
}

}  // namespace

KeeperLink::KeeperLink(Loop& loop, Fd channel) : loop_(loop), channel_(std::move(channel)) {}

Result<KeeperLink::Inheritance> KeeperLink::take() {
  const std::uint64_t request = next_request_++;
  const auto message = wire::make<wire::Take>(request, 0);
  if (Status sent = channel::send(channel_.get(), wire::bytes_of(message), {}, soon()); !sent.ok())
    return sent.error();
  Inheritance kept;
  if (Status answered = wait_for_ack(request, &kept); !answered.ok()) return answered.error();
  return kept;
}

Status KeeperLink::put_now(wire::KeptKind kind, Bytes bytes, int fd) {
  const std::uint64_t request = next_request_++;
  auto message = wire::make<wire::Put>(request, 0);
  message.part.count = 1;
  message.entries[0] = {.id = 0, .bytes = bytes.value, .kind = static_cast<std::uint32_t>(kind)};
  if (Status sent = channel::send(channel_.get(), wire::bytes_of(message), {&fd, 1}, soon()); !sent.ok())
    return sent;
  return wait_for_ack(request, nullptr);
}

Status KeeperLink::wait_for_ack(std::uint64_t request, Inheritance* into) {
  channel::Datagram datagram;
  while (true) {
    if (Status got = channel::receive(channel_.get(), datagram, soon()); !got.ok()) return got;
    Result<wire::Message> message = wire::decode(datagram.bytes(), wire::Sender::keeper_pair);
    if (!message.ok()) return message.error();
    if (Status complete = channel::require_fds(datagram, wire::fds_of(*message)); !complete.ok())
      return complete;
    if (const auto* ack = std::get_if<wire::Ack>(&*message);
        ack != nullptr && ack->header.request_id == request)
      return result_of(*ack);
    const auto* put = std::get_if<wire::Put>(&*message);
    if (put == nullptr || into == nullptr) continue;  // a ping of the start: nobody counts them yet
    for (std::size_t i = 0; i < put->part.count; ++i) {
      const wire::KeptEntry& entry = put->entries[i];
      switch (static_cast<wire::KeptKind>(entry.kind)) {
        case wire::KeptKind::chunk:
          ++into->chunks;
          break;
        case wire::KeptKind::listening_socket:
          into->listening_socket = std::move(datagram.fds[i]);
          break;
        case wire::KeptKind::device_lock:
          into->device_lock = std::move(datagram.fds[i]);
          break;
        case wire::KeptKind::journal:
          into->journal = std::move(datagram.fds[i]);
          into->journal_bytes = Bytes{entry.bytes};
          break;
      }
    }
  }
}

Status KeeperLink::watch(std::function<void(std::string)> lost, std::function<void()> pinged) {
  lost_ = std::move(lost);
  pinged_ = std::move(pinged);
  readable_ = loop_.on_readable(channel_.get(), [this] { read(); });
  if (!readable_) return Error{Errc::system, "no room to watch the keeper's socket"};
  return Done{};
}

void KeeperLink::ready() {
  if (!channel_) return;
  // No answer comes, and the socket has room: nothing else is in it but pings.
  const Status sent =
      channel::send(channel_.get(), wire::bytes_of(wire::make<wire::Ready>(0, 0)), {}, soon());
  if (!sent.ok()) give_up(sent.error().message);
}

void KeeperLink::put(std::span<const ChunkId> ids, std::vector<Fd> fds, Answer answer) {
  APPORTION_CHECK(ids.size() == fds.size() && ids.size() <= wire::kMaxFds);
  const std::uint64_t request = next_request_++;
  enqueue(request, wire::bytes_of(list_of<wire::Put>(ids, request)), std::move(fds), std::move(answer));
}

void KeeperLink::del(std::span<const ChunkId> ids, Answer answer) {
  APPORTION_CHECK(ids.size() <= wire::kMaxFds);
  const std::uint64_t request = next_request_++;
  enqueue(request, wire::bytes_of(list_of<wire::Del>(ids, request)), {}, std::move(answer));
}

void KeeperLink::enqueue(std::uint64_t request, std::span<const std::byte> bytes, std::vector<Fd> fds,
                         Answer answer) {
  if (!channel_) return loop_.post([answer = std::move(answer)] { answer(Done{}); });
  queue_.push_back({request, {bytes.begin(), bytes.end()}, std::move(fds), std::move(answer)});
  send_next();
}

void KeeperLink::send_next() {
  if (in_flight_ || queue_.empty() || !channel_) return;
  Outgoing& next = queue_.front();
  std::vector<int> fds;
  for (const Fd& fd : next.fds)
    fds.push_back(fd.get());
  Result<channel::Sent> sent = channel::try_send(channel_.get(), next.bytes, fds);
  if (!sent.ok()) return give_up(sent.error().message);
  if (*sent != channel::Sent::yes) {
    const auto again = [this] {
      writable_.reset();
      send_next();
    };
    // Too many descriptors in flight: the socket is writable, and no event says when that ends.
    if (*sent == channel::Sent::would_block && !writable_)
      writable_ = loop_.on_writable(channel_.get(), again);
    if (!writable_) writable_ = loop_.after(kRetry, again);
    return;
  }
  in_flight_ = true;
  next.fds.clear();  // K3: what is in flight has references of its own
}

void KeeperLink::read() {
  channel::Datagram datagram;
  while (channel_) {
    Result<bool> got = channel::try_receive(channel_.get(), datagram);
    if (!got.ok()) return give_up(got.error().message);
    if (!*got) return;
    Result<wire::Message> message = wire::decode(datagram.bytes(), wire::Sender::keeper_pair);
    if (!message.ok()) return give_up(message.error().message);
    if (std::holds_alternative<wire::Ping>(*message)) {
      (void)channel::try_send(channel_.get(), wire::bytes_of(wire::make<wire::Pong>(0, 0)));
      if (pinged_) pinged_();
    } else if (const auto* ack = std::get_if<wire::Ack>(&*message)) {
      if (!in_flight_ || queue_.front().request != ack->header.request_id) continue;
      const Answer answer = std::move(queue_.front().answer);
      queue_.pop_front();
      in_flight_ = false;
      send_next();
      answer(result_of(*ack));
    }
  }
}

void KeeperLink::give_up(const std::string& why) {
  if (!channel_) return;
  readable_.reset();
  writable_.reset();
  channel_.reset();
  in_flight_ = false;
  if (lost_) lost_(why);
  // One at a time and later: an answer may put or del again.
  for (Outgoing& waiting : std::exchange(queue_, {}))
    loop_.post([answer = std::move(waiting.answer)] { answer(Done{}); });
}

}  // namespace apportion
