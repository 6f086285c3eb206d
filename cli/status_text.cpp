#include "cli/status_text.hpp"

#include <pwd.h>

#include "cli/status_figures.hpp"
#include "cli/table.hpp"
#include "shm/bytes.hpp"

namespace apportion {
namespace {

std::string user_name(std::uint32_t uid) {
  const passwd* entry = getpwuid(uid);
  return entry == nullptr ? std::to_string(uid) : entry->pw_name;
}

std::string text(std::uint64_t bytes) {
  return to_text(Bytes{bytes});
}

std::string head(const StatusAnswer& answer) {
  const wire::BrokerRow& broker = answer.broker;
  const TotalsRecord& totals = broker.totals;
  const bool simulated = (broker.flags & wire::BrokerRow::kSimulated) != 0;
  std::string out = std::string(broker.device_uuid.view()) + "  " + std::string(broker.device_name.view()) +
                    ", " + text(totals.device_total) + (simulated ? " (simulated device)" : "") + "\n";
  out += "broker   pid " + std::to_string(broker.pid) + ", keeper " + std::to_string(broker.keeper_pid) +
         ", up " + std::to_string(broker.uptime_ms / 1000) + " s, " + std::string(broker.socket.view()) +
         "\n";
  if (broker.keeper_pid == 0)
    out += "keeper   gone; when the jobs are done, stop apportiond (kill -TERM " +
           std::to_string(broker.pid) +
           ") and start it again: until then a crash of the broker loses what it knows\n";
  if (!broker.note.empty()) out += "closed   " + std::string(broker.note.view()) + "\n";
  out += "pool     " + text(totals.pool) + " = charged " + text(totals.charged) + " + in transit " +
         text(totals.in_transit) + " + free " + text(totals.free + totals.loose) + "; chunks of " +
         text(totals.chunk) + "\n";
  out += "outside  overhead " + text(totals.overhead) + " + helper context " + text(totals.helper_context) +
         ", of it in use by contexts " + text(contexts_of(answer)) + "; foreign " + text(totals.foreign) +
         "\n";
  return out;
}

std::string jobs(const StatusAnswer& answer) {
  Table table({"job", ">promised", ">in force", ">covered", ">limit", ">charged", ">used", ">idle",
               ">in transit", ">told free", ">processes"});
  for (const wire::JobRow& row : answer.jobs) {
    const JobRecord& job = row.job;
    table.row({std::string(job.name.view()), gib(job.guarantee), gib(job.in_force), gib(job.covered),
               gib(job.limit), gib(job.charged), gib(used_of(job)), gib(job.idle), gib(job.in_transit),
               gib(told_free_of(job)), std::to_string(job.sessions)});
  }
  return table.text();
}

std::string processes(const StatusAnswer& answer) {
  Table table({"process", "user", "job", "state", ">told", ">used", ">idle", ">in transit", ">overhead",
               ">foreign", "program"});
  for (const wire::SessionRow& row : answer.sessions) {
    const SessionRecord& session = row.session;
    table.row({session.pid == 0 ? "?" : std::to_string(session.pid), user_name(session.uid),
               std::string(row.job_name.view()), state_word(session.state), gib(session.told_total),
               gib(used_of(session)), gib(session.idle), gib(session.in_transit),
               gib(overhead_of(answer, row)), "", std::string(session.label.view())});
  }
  for (const wire::HolderRow& holder : answer.holders) {
    if (holder.kind == static_cast<std::uint32_t>(wire::HolderKind::context)) continue;
    const bool known = holder.pid != 0;
    const bool ours = holder.kind == static_cast<std::uint32_t>(wire::HolderKind::helper);
    table.row({known ? std::to_string(holder.pid) : "-", known ? user_name(holder.uid) : "-", "-",
               holder_word(holder.kind), "", "", "", "", ours ? gib(holder.bytes) : "",
               ours ? "" : gib(holder.bytes), std::string(holder.name.view())});
  }
  return table.empty() ? "no process holds memory\n" : table.text();
}

}  // namespace

std::string status_text(const StatusAnswer& answer) {
  return head(answer) + "\nin GiB:\n" + jobs(answer) + "\n" + processes(answer);
}

}  // namespace apportion
