#include "libclient/broker_link.hpp"

#include <unistd.h>

#include <memory>

#include "libclient/host_memory.hpp"
#include "shm/fault_point.hpp"
#include "shm/find_broker.hpp"
#include "shm/job_layout.hpp"
#include "shm/ledger_layout.hpp"
#include "shm/report_layout.hpp"

namespace apportion {

namespace {

wire::LayoutVersions our_layouts() {
  wire::LayoutVersions layouts;
  layouts.ledger_major = kLedgerMajor;
  layouts.ledger_minor = kLedgerMinor;
  layouts.job_page_major = kJobPageMajor;
  layouts.job_page_minor = kJobPageMinor;
  layouts.report_page_major = kReportPageMajor;
  layouts.report_page_minor = kReportPageMinor;
  return layouts;
}

template <typename M>
const M* as(const wire::Message& message) {
  return std::get_if<M>(&message);
}

std::uint64_t id_of(const wire::ChunkEntry& chunk) {
  return chunk.chunk_id;
}
std::uint64_t id_of(const wire::SlabPlace& slab) {
  return slab.lease_id;
}

Error refusal(std::uint32_t code, std::string_view text) {
  return {static_cast<Errc>(code), std::string(text)};
}

}  // namespace

Result<std::unique_ptr<BrokerLink>> BrokerLink::open(const Options& options) {
  Environment environment = Environment::current();
  if (!options.socket.empty()) {
    environment.apportion_socket = options.socket;
    environment.named_by = "the attach option \"socket\"";
  }
  Result<Connection> connected = connect_to_broker(environment);
  if (!connected) return connected.error();
  return open(std::move(connected->socket), connected->path, options);
}

Result<std::unique_ptr<BrokerLink>> BrokerLink::open(Fd socket, std::string path, const Options& options) {
  if (options.job.size() > decltype(wire::Hello::job)::kMaxLength) {
    return Error{Errc::invalid, "the job name \"" + options.job + "\" is longer than 63 bytes"};
  }
  std::unique_ptr<BrokerLink> link(new BrokerLink(std::move(socket), std::move(path), options.answer_time));
  if (Status greeted = link->hello(options); !greeted) return greeted.error();
  return link;
}

Status BrokerLink::hello(const Options& options) {
  const std::lock_guard lock(mutex_);
  auto message = wire::make<wire::Hello>(next_request_++, 0);
  message.job.set(options.job);
  message.label.set(options.label);
  message.layouts = our_layouts();
  message.flags = options.reclaimable ? wire::Hello::kReclaimable : 0;
  if (Status sent = send(message); !sent) return sent;
  channel::Datagram datagram;
  Result<wire::Message> answer = answer_to(message.header.request_id, datagram, Clock::now() + answer_time_);
  if (!answer) return answer.error();
  const auto* welcome = as<wire::Welcome>(*answer);
  if (welcome == nullptr) {
    return lose({Errc::protocol, "the broker at " + path_ + " answered HELLO with " +
                                     wire::to_text(static_cast<wire::Type>(wire::header_of(*answer).type))});
  }
  if (Status fds = channel::require_fds(datagram, wire::Welcome::kFds); !fds) {
    Error error = fds.error();
    if (datagram.fds_lost) error.code = Errc::system;  // K5: what ran out is descriptors, not memory
    return lose(std::move(error));
  }
  welcome_ = *welcome;
  pages_ = std::move(datagram.fds);
  return Done{};
}

Result<BrokerLink::Granted> BrokerLink::request(Bytes min, Bytes want, std::uint32_t flags,
                                                const TakePart& take) {
  const Exchange exchange(*this);
  auto message = wire::make<wire::Request>(next_request_++, welcome_.header.epoch);
  message.min_bytes = min.value;
  message.want_bytes = want.value;
  message.flags = flags;
  if (Status sent = send(message); !sent) return sent.error();
  return receive_grant(message.header.request_id, take,
                       Clock::now() + answer_time_ + std::chrono::milliseconds(welcome_.wait_ms));
}

Result<BrokerLink::Granted> BrokerLink::receive_grant(std::uint64_t request_id, const TakePart& take,
                                                      Clock::time_point deadline) {
  Granted granted;
  // What was taken is taken, whatever comes instead of the rest; a part that comes later is given back when
  // it is read.
  const auto end = [&](Error error) -> Result<Granted> {
    if (granted.taken.value == 0) return error;
    if (!granted.error) granted.error = std::move(error);
    return granted;
  };
  for (;;) {
    channel::Datagram datagram;
    // F31: without host memory for one part, the earlier ones are taken all the same.
    Result<wire::Message> answer = shielded([&] { return answer_to(request_id, datagram, deadline); });
    if (!answer) return end(copy_of(answer.error()));
    if (const auto* refused = as<wire::Refusal>(*answer))
      return end(refusal(refused->code, refused->text.view()));
    const auto* grant = as<wire::Grant>(*answer);
    if (grant == nullptr || static_cast<wire::GrantKind>(grant->kind) != wire::GrantKind::chunks) {
      return end(lose({Errc::protocol, "the broker at " + path_ + " answered REQUEST with something else"}));
    }
    APPORTION_FAULT_POINT("client.after_grant");
    const std::span entries(grant->entries.data(), grant->part.count);
    Status taken = Done{};
    if (Status fds = channel::require_fds(datagram, entries.size()); !fds) {
      taken = Error{datagram.fds_lost ? Errc::system : Errc::protocol, fds.error().message};
    } else if (granted.error) {
      taken = copy_of(*granted.error);
    } else {
      taken = shielded([&] { return take(granted.taken, entries, std::move(datagram.fds)); });
    }
    if (taken.ok()) {
      for (const wire::ChunkEntry& entry : entries)
        granted.taken += Bytes{entry.bytes};
      APPORTION_FAULT_POINT("client.before_ack");
      acknowledge(*grant);
      APPORTION_FAULT_POINT("client.after_ack");
    } else {
      if (!granted.error) granted.error = copy_of(taken.error());
      datagram.fds.clear();
      refuse_grant(*grant, taken.error().code);
    }
    if (grant->part.part + 1 == grant->part.parts) return granted;
  }
}

Status BrokerLink::request_slab(Bytes bytes, bool ahead, const TakeSlab& take) {
  const Exchange exchange(*this);
  auto message = wire::make<wire::Request>(next_request_++, welcome_.header.epoch);
  message.min_bytes = message.want_bytes = bytes.value;
  message.flags = wire::Request::kExact | (ahead ? wire::Request::kAhead : 0);
  if (Status sent = send(message); !sent) return sent;
  channel::Datagram datagram;
  Result<wire::Message> answer =
      answer_to(message.header.request_id, datagram,
                Clock::now() + answer_time_ + std::chrono::milliseconds(welcome_.wait_ms));
  if (!answer) return answer.error();
  if (const auto* refused = as<wire::Refusal>(*answer)) return refusal(refused->code, refused->text.view());
  const auto* grant = as<wire::SlabGrant>(*answer);
  if (grant == nullptr || grant->part.parts != 1 || grant->part.count != 1) {
    return lose({Errc::protocol, "the broker at " + path_ + " answered REQUEST with something else"});
  }
  APPORTION_FAULT_POINT("client.after_grant");
  Status taken = shielded([&] { return take(grant->entries[0]); });
  if (!taken) {
    refuse_grant(*grant, taken.error().code);
    return taken;
  }
  APPORTION_FAULT_POINT("client.before_ack");
  acknowledge(*grant);
  APPORTION_FAULT_POINT("client.after_ack");
  return taken;
}

Status BrokerLink::release(std::span<const std::uint64_t> ids) {
  if (ids.empty()) return Done{};
  const Exchange exchange(*this);
  const std::uint64_t request_id = next_request_++;
  Status sent = Done{};
  wire::for_each_part<wire::Release>(ids.size(), wire::kMaxIds, request_id, welcome_.header.epoch,
                                     [&](wire::Release& message, std::size_t first, std::size_t count) {
                                       std::copy_n(ids.begin() + static_cast<std::ptrdiff_t>(first), count,
                                                   message.ids.begin());
                                       if (sent) sent = send(message);
                                     });
  if (!sent) return sent;
  APPORTION_FAULT_POINT("client.after_release");
  channel::Datagram datagram;
  const Result<wire::Message> answer = answer_to(request_id, datagram, Clock::now() + answer_time_);
  if (!answer) return answer.error();
  return Done{};
}

Status BrokerLink::detach() {
  const Exchange exchange(*this);
  if (lost_) return Done{};
  const auto message = wire::make<wire::Detach>(next_request_++, welcome_.header.epoch);
  Status sent = send(message);
  channel::Datagram datagram;
  if (sent)
    static_cast<void>(answer_to(message.header.request_id, datagram, Clock::now() + answer_time_).ok());
  lose({Errc::not_attached, "detached"});
  return sent;
}

void BrokerLink::read_unasked() {
  const std::lock_guard lock(mutex_);
  while (!lost_) {
    channel::Datagram datagram;
    const Result<bool> received = channel::try_receive(socket_.get(), datagram);
    if (!received) {
      lose(gone(received.error()));
      return;
    }
    if (!*received) return;
    const Result<wire::Message> message = understood(datagram);
    if (!message) return;
    if (const auto* refused = as<wire::Refused>(*message)) {
      lose(refusal(refused->code, refused->text.view()));
    } else {
      settle_stranger(*message, datagram);
    }
  }
}

Result<wire::Message> BrokerLink::understood(const channel::Datagram& datagram) {
  Result<wire::Message> message = wire::decode(datagram.bytes(), wire::Sender::broker);
  if (!message) return lose({Errc::protocol, "the broker at " + path_ + ": " + message.error().message});
  return message;
}

Result<wire::Message> BrokerLink::answer_to(std::uint64_t request_id, channel::Datagram& datagram,
                                            Clock::time_point deadline) {
  for (;;) {
    if (lost_) return *lost_;
    if (Status received = channel::receive(socket_.get(), datagram, deadline); !received) {
      Error error = received.error();
      if (error.code == Errc::timed_out) {
        error.message = "the broker at " + path_ + " did not answer in time; what is held stays usable";
        return error;
      }
      return lose(gone(std::move(error)));
    }
    Result<wire::Message> message = understood(datagram);
    if (!message) return message;
    const wire::Header& header = wire::header_of(*message);
    if (const auto* refused = as<wire::Refused>(*message)) {
      Error error = refusal(refused->code, refused->text.view());
      // Of this message: the caller's matter, and a broker that closes is noticed by the next call. Of
      // anything else, we have sent what the broker cannot bear.
      if (header.request_id == request_id) return error;
      return lose(std::move(error));
    }
    const bool old = header.epoch < welcome_.header.epoch;  // F54
    if (header.request_id == request_id && !old) {
      if (wire::fds_of(*message) == 0) datagram.fds.clear();
      return message;
    }
    settle_stranger(*message, datagram);
  }
}

// A message that nobody waits for any more, or that came unasked.
void BrokerLink::settle_stranger(const wire::Message& message, channel::Datagram& datagram) {
  datagram.fds.clear();
  if (const auto* grant = as<wire::Grant>(message)) {
    if (grant->header.epoch < welcome_.header.epoch) return;  // F54: that broker's leases are settled already
    refuse_grant(*grant, Errc::timed_out);
  } else if (const auto* slabs = as<wire::SlabGrant>(message)) {
    if (slabs->header.epoch >= welcome_.header.epoch) refuse_grant(*slabs, Errc::timed_out);
  } else if (const auto* lost = as<wire::SlabsLost>(message)) {
    const std::lock_guard lock(lost_slabs_mutex_);
    lost_slabs_.ids.insert(lost_slabs_.ids.end(), lost->ids.begin(), lost->ids.begin() + lost->part.count);
    lost_slabs_text_ = lost->text.view();
    losses_.fetch_add(1, std::memory_order_release);
  } else if (const auto* reclaim = as<wire::Reclaim>(message)) {
    const std::lock_guard lock(recalls_mutex_);
    if (recalls_.size() == kMostRecalls) {
      lose({Errc::protocol, "the broker at " + path_ + " asks for memory back faster than it can be given"});
    } else {
      recalls_.push_back({reclaim->header.request_id, Bytes{reclaim->bytes}});
      recalls_waiting_ = recalls_.size();
    }
  }
}

Status BrokerLink::settle(const Recall& recall, Bytes given, std::optional<Errc> why_not_more) {
  const std::lock_guard lock(mutex_);
  auto message = wire::make<wire::Reclaimed>(recall.request_id, welcome_.header.epoch);
  message.bytes = given.value;
  message.code = why_not_more ? 1 + static_cast<std::uint32_t>(*why_not_more) : 0;
  return send(message);
}

template <typename G>
void BrokerLink::acknowledge(const G& grant) {
  auto ack = wire::make<wire::GrantAck>(grant.header.request_id, grant.header.epoch);
  ack.part.count = grant.part.count;
  for (std::size_t index = 0; index < grant.part.count; ++index)
    ack.ids[index] = id_of(grant.entries[index]);
  static_cast<void>(send(ack));  // a lost connection is noticed by the next call
}

template <typename G>
void BrokerLink::refuse_grant(const G& grant, Errc reason) {
  auto nack = wire::make<wire::GrantNack>(grant.header.request_id, grant.header.epoch);
  nack.reason = static_cast<std::uint32_t>(reason);
  nack.part.count = grant.part.count;
  for (std::size_t index = 0; index < grant.part.count; ++index)
    nack.ids[index] = id_of(grant.entries[index]);
  static_cast<void>(send(nack));
}

template <typename M>
Status BrokerLink::send(const M& message) {
  if (lost_) return *lost_;
  Status sent = channel::send(socket_.get(), wire::bytes_of(message), {}, Clock::now() + answer_time_);
  if (sent || sent.error().code == Errc::timed_out) return sent;
  return lose(gone(sent.error()));
}

Error BrokerLink::gone(Error why) {
  if (why.code != Errc::disconnected) return why;
  why.message = "the broker at " + path_ + " is gone";
  if ((welcome_.flags & wire::Welcome::kSlabs) == 0) {
    why.message += "; what is held stays usable, more is not to be had";
    return why;
  }
  // F52: its helper does not outlive it.
  why.message += ", and with it the process that owned this session's slabs: what was in them is lost";
  const std::lock_guard lock(lost_slabs_mutex_);
  lost_slabs_.all = true;
  lost_slabs_text_ = why.message;
  losses_.fetch_add(1, std::memory_order_release);
  return why;
}

Error BrokerLink::lose(Error why) {
  if (!lost_) lost_ = std::move(why);
  set_watched(false);
  socket_.reset();
  return *lost_;
}

void BrokerLink::hang_up() {
  const std::lock_guard lock(mutex_);
  lose({Errc::not_attached, "detached"});
}

void BrokerLink::abandon_in_child() noexcept {
  // Not reset(): the parent's object must stay as it is, and the child's copy of it is never looked at again.
  if (socket_.valid()) ::close(socket_.get());
}

}  // namespace apportion
