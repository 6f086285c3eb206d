// The shell's part that speaks to clients: WELCOME, GRANT, REFUSAL, RELEASED, and the end of a session.
#include <unistd.h>

#include "broker/shell.hpp"
#include "shm/fault_point.hpp"

namespace apportion {
namespace {

Errc code_of(Refusal::Rule rule) {
  switch (rule) {
    case Refusal::Rule::malformed:
      return Errc::invalid;
    case Refusal::Rule::device_full:
      return Errc::out_of_memory;
    case Refusal::Rule::scrub_failed:
    case Refusal::Rule::helper_failed:
    case Refusal::Rule::send_failed:
      return Errc::driver;
    case Refusal::Rule::closed:
      return Errc::busy;
    case Refusal::Rule::limit:
    case Refusal::Rule::uncovered:
    case Refusal::Rule::burst:
      return Errc::quota;
  }
  return Errc::quota;
}

// The chunks of one grant are of one size.
std::vector<ClientConnection::GrantPart> grant_messages(const actions::SendGrant& grant,
                                                        std::vector<Fd> fds) {
  const std::uint64_t each = grant.bytes.value / grant.ids.size();
  std::vector<ClientConnection::GrantPart> parts;
  wire::for_each_part<wire::Grant>(grant.ids.size(), wire::kMaxGrantChunks, grant.request.value, grant.epoch,
                                   [&](wire::Grant& message, std::size_t first, std::size_t count) {
                                     ClientConnection::GrantPart part;
                                     for (std::size_t i = 0; i < count; ++i) {
                                       const ChunkId id = grant.ids[first + i];
                                       message.entries[i] = {.chunk_id = id.value, .bytes = each};
                                       part.fds.push_back(std::move(fds[first + i]));
                                       part.ids.push_back(id);
                                     }
                                     message.part.flags =
                                         message.part.part + 1 == message.part.parts ? wire::kLast : 0;
                                     const auto bytes = wire::bytes_of(message);
                                     part.bytes.assign(bytes.begin(), bytes.end());
                                     parts.push_back(std::move(part));
                                   });
  return parts;
}

}  // namespace

// The session exists in the core, and cannot be told so: taken back where it is new, else it waits for its
// client to come again.
void Shell::withdraw(const actions::Welcome& welcome) {
  if (welcome.resumed) return event(events::HungUp{welcome.session});
  event(events::Detached{welcome.session});
}

void Shell::on(const actions::Welcome& action) {
  ClientConnection* connection = server_.find(action.connection);
  if (connection == nullptr || !connection->open()) return withdraw(action);
  Result<std::vector<Fd>> pages = publisher_->pages_for(action.session, action.job);
  if (!pages.ok()) {  // F30: this one goes without, the others go on
    withdraw(action);
    return refuse_hello(*connection, pages.error());
  }
  server_.bind(action.connection, action.session);
  auto welcome = wire::make<wire::Welcome>(connection->hello_request, action.epoch);
  const JobFigures job = core_.job_page(action.job);
  const JobConfig& config = parts_.config.jobs[action.job.value];
  welcome.token = action.token;
  welcome.session_id = action.session.value;
  welcome.pool_bytes = parts_.load.pool.value;
  welcome.chunk_bytes = action.chunk.value;
  welcome.device_total_bytes = parts_.load.device.total.value;
  welcome.guarantee_bytes = job.guarantee;
  welcome.in_force_bytes = job.in_force;
  welcome.covered_bytes = job.covered;
  welcome.limit_bytes = job.limit;
  welcome.used_bytes = job.used;
  welcome.told_total_bytes = action.told_total.value;
  welcome.wait_ms = static_cast<std::uint64_t>(config.wait.count());
  welcome.idle_return_ms = static_cast<std::uint64_t>(parts_.config.broker.idle_return.count());
  welcome.layouts = {
      kLedgerMajor, kLedgerMinor, kJobPageMajor, kJobPageMinor, kReportPageMajor, kReportPageMinor, 0};
  welcome.flags = (parts_.facts.simulated ? wire::Welcome::kSimulated : 0U) |
                  (action.resumed ? wire::Welcome::kReattached : 0U) |
                  (config.transport == Transport::ipc ? wire::Welcome::kSlabs : 0U);
  welcome.broker_pid = static_cast<std::uint32_t>(getpid());
  welcome.job = wire::Text<64>(config.name);
  welcome.device_uuid = wire::Text<48>(parts_.facts.device_uuid);
  welcome.device_name = wire::Text<96>(parts_.facts.device_name);
  if (parts_.facts.simulated) {
    welcome.driver_path = wire::Text<512>(parts_.driver_path);
    welcome.cudasim_dir = wire::Text<512>(parts_.cudasim_dir);
  }
  APPORTION_FAULT_POINT("welcome.before_send");
  connection->send(wire::bytes_of(welcome), *std::move(pages));
}

void Shell::on(const actions::RefuseHello& action) {
  if (ClientConnection* connection = server_.find(action.connection)) refuse_hello(*connection, action.error);
}

void Shell::refuse_hello(ClientConnection& connection, const Error& error) {
  server_.refuse(connection, connection.hello_request, wire::Type::hello, error);
}

void Shell::on(const actions::SendGrant& action) {
  if (action.slabs) return send_slabs(action);
  // F54: what is exported for this connection goes nowhere else. A session that has re-attached meanwhile has
  // settled its leases, and these chunks are not among them.
  const ClientConnection* now_there = server_.connection_of(action.session);
  const ConnectionId to = now_there != nullptr ? now_there->id() : ConnectionId{};
  pool_.export_fds(action.ids, [this, action, to](Result<std::vector<Fd>> fds) {
    if (!fds.ok())
      return event(events::GrantUnsent{action.session, action.request, action.ids, fds.error().message});
    ClientConnection* connection = server_.connection_of(action.session);
    if (connection == nullptr || connection->id() != to)
      return event(events::GrantUnsent{action.session, action.request, action.ids, "the client hung up"});
    connection->send_grant(action.session, action.request, grant_messages(action, *std::move(fds)));
  });
}

void Shell::on(const actions::SendRefusal& action) {
  ClientConnection* connection = server_.connection_of(action.session);
  if (connection == nullptr) return;
  const Refusal& refusal = action.refusal;
  auto message = wire::make<wire::Refusal>(action.request.value, parts_.setup.epoch);
  message.code = static_cast<std::uint32_t>(code_of(refusal.rule));
  message.asked_bytes = refusal.asked.value;
  message.used_bytes = refusal.used.value;
  message.guarantee_bytes = refusal.guarantee.value;
  message.covered_bytes = refusal.covered.value;
  message.limit_bytes = refusal.limit.value;
  message.headroom_bytes = refusal.headroom.value;
  message.free_bytes = refusal.free.value;
  message.text.set(refusal.reason);
  connection->send(wire::bytes_of(message));
}

void Shell::on(const actions::SendReleased& action) {
  ClientConnection* connection = server_.connection_of(action.session);
  if (connection == nullptr) return;
  auto message = wire::make<wire::Released>(action.request.value, parts_.setup.epoch);
  message.bytes = action.bytes.value;
  message.chunks = action.chunks;
  message.unknown = static_cast<std::uint32_t>(action.unknown.size());
  APPORTION_FAULT_POINT("released.before_send");
  connection->send(wire::bytes_of(message));
}

void Shell::on(const actions::SendReclaim& action) {
  ClientConnection* connection = server_.connection_of(action.session);
  if (connection == nullptr) return;
  auto message = wire::make<wire::Reclaim>(action.reclaim.value, parts_.setup.epoch);
  message.bytes = action.bytes.value;
  message.deadline_ms = action.deadline_ms;
  connection->send(wire::bytes_of(message));
}

void Shell::on(const actions::EndSession& action) {
  publisher_->remove_session(action.session);
  server_.end(action, parts_.setup.epoch);
}

}  // namespace apportion
