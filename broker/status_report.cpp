#include "broker/status_report.hpp"

#include <unistd.h>

#include <algorithm>

namespace apportion {
namespace {

template <typename M, typename Rows>
void send_list(const Rows& rows, std::size_t capacity, std::uint64_t request, std::uint64_t epoch,
               const SendRow& send) {
  wire::for_each_part<M>(
      rows.size(), capacity, request, epoch, [&](M& message, std::size_t first, std::size_t count) {
        std::copy_n(rows.begin() + static_cast<std::ptrdiff_t>(first), count, message.rows.begin());
        send(wire::bytes_of(message));
      });
}

wire::BrokerRow broker_row(const StatusFacts& facts, const LedgerSnapshot& snapshot,
                           std::uint64_t generation) {
  wire::BrokerRow row;
  row.totals = snapshot.totals;
  row.device_uuid = wire::Text<48>(facts.device_uuid);
  row.device_name = wire::Text<96>(facts.device_name);
  row.version = wire::Text<32>(APPORTION_VERSION);
  row.socket = wire::Text<256>(facts.socket);
  row.config = wire::Text<256>(facts.config);
  row.note = wire::Text<512>(facts.note);
  row.pid = static_cast<std::uint32_t>(getpid());
  row.keeper_pid = facts.keeper_pid;
  row.uptime_ms = facts.uptime_ms;
  row.generation = generation;
  row.jobs = snapshot.jobs_total;
  row.sessions = snapshot.sessions_total;
  row.restarts = facts.restarts;
  row.flags = (facts.simulated ? wire::BrokerRow::kSimulated : 0U) |
              (facts.note.empty() ? 0U : wire::BrokerRow::kClosed) |
              (facts.leased ? wire::BrokerRow::kReserveLeased : 0U);
  return row;
}

}  // namespace

std::vector<wire::HolderRow> holder_rows(const LedgerSnapshot& snapshot, const Pool::Room& room,
                                         Bytes reserved, std::int32_t helper_pid, Bytes slabs) {
  std::vector<wire::HolderRow> rows;
  Bytes listed = reserved;
  Bytes others;
  const auto self = static_cast<std::uint32_t>(getpid());
  for (std::size_t i = 0; i < room.processes.size(); ++i) {
    const DeviceProcess& process = room.processes[i];
    const auto pid = static_cast<std::uint32_t>(process.pid);
    Bytes used = process.used.value_or(Bytes{});
    if (process.pid == helper_pid) used = saturating_sub(used, slabs);  // they are in `reserved`
    if (pid == self) {
      listed = std::max(listed, used);
      continue;
    }
    const auto session = std::find_if(snapshot.sessions.begin(), snapshot.sessions.end(),
                                      [&](const SessionRecord& record) { return record.pid == pid; });
    wire::HolderRow row;
    row.bytes = used.value;
    row.pid = pid;
    row.uid = kUnknownUid;
    if (i < room.labels.size()) {
      row.uid = room.labels[i].uid;
      row.name = wire::Text<64>(room.labels[i].name);
    }
    row.kind = static_cast<std::uint32_t>(wire::HolderKind::foreign);
    if (session != snapshot.sessions.end()) {
      row.kind = static_cast<std::uint32_t>(wire::HolderKind::context);
      row.session_id = session->id;
    } else if (process.pid == helper_pid) {
      row.kind = static_cast<std::uint32_t>(wire::HolderKind::helper);
    }
    rows.push_back(row);
    others += used;
  }
  listed += others;
  if (room.memory.ok() && room.memory->used > listed) {
    wire::HolderRow rest;
    rest.bytes = (room.memory->used - listed).value;
    rest.kind = static_cast<std::uint32_t>(wire::HolderKind::foreign_rest);
    rows.push_back(rest);
  }
  return rows;
}

std::string others_on(const Pool::Room& room) {
  constexpr std::size_t kNamed = 4;
  std::vector<std::pair<Bytes, std::string>> others;
  for (std::size_t i = 0; i < room.processes.size() && i < room.labels.size(); ++i) {
    const DeviceProcess& process = room.processes[i];
    if (process.pid == getpid()) continue;
    const ProcessLabel& label = room.labels[i];
    const std::string uid = label.uid == kUnknownUid ? "" : ", uid " + std::to_string(label.uid);
    others.emplace_back(
        process.used.value_or(Bytes{}),
        (label.name.empty() ? "a process" : label.name) + " (pid " + std::to_string(process.pid) + uid + ")");
  }
  std::sort(others.begin(), others.end(), std::greater<>());
  std::string text;
  for (std::size_t i = 0; i < others.size() && i < kNamed; ++i)
    text += (i == 0 ? "; on the device now: " : ", ") + to_text(others[i].first) + " of " + others[i].second;
  return text;
}

void send_status(const StatusFacts& facts, const LedgerSnapshot& snapshot, const Publisher& pages,
                 std::span<const JobCounters> counters, std::span<const wire::HolderRow> holders,
                 const wire::StatusRequest& request, const SendRow& send) {
  const std::uint64_t id = request.header.request_id;
  if ((request.what & wire::StatusRequest::kJobs) != 0) {
    std::vector<wire::JobRow> rows;
    for (std::size_t i = 0; i < snapshot.jobs.size(); ++i)
      rows.push_back({.job = snapshot.jobs[i],
                      .peak_charged = counters[i].peak_charged.value,
                      .grants = counters[i].grants,
                      .refusals = counters[i].refusals,
                      .waiting = 0});
    send_list<wire::StatusJobs>(rows, wire::kMaxJobRows, id, facts.epoch, send);
  }
  if ((request.what & wire::StatusRequest::kSessions) != 0) {
    std::vector<wire::SessionRow> rows;
    for (const SessionRecord& record : snapshot.sessions) {
      wire::SessionRow row;
      row.session = record;
      if (record.job < snapshot.jobs.size()) row.job_name = snapshot.jobs[record.job].name;
      row.report = pages.report(SessionId{record.id});
      rows.push_back(row);
    }
    send_list<wire::StatusSessions>(rows, wire::kMaxSessionRows, id, facts.epoch, send);
  }
  if ((request.what & wire::StatusRequest::kHolders) != 0)
    send_list<wire::StatusHolders>(holders, wire::kMaxHolderRows, id, facts.epoch, send);
  // Last, with the flag: a reader that has it has everything.
  auto broker = wire::make<wire::StatusBroker>(id, facts.epoch);
  broker.part.count = 1;
  broker.part.flags = wire::kLast;
  broker.row = broker_row(facts, snapshot, pages.generation());
  send(wire::bytes_of(broker));
}

}  // namespace apportion
