#include "cli/status_json.hpp"

#include <nlohmann/json.hpp>

#include "cli/status_figures.hpp"

namespace apportion {
namespace {

using Json = nlohmann::ordered_json;

Json job_json(const wire::JobRow& row) {
  const JobRecord& job = row.job;
  return {{"job", job.name.view()},
          {"priority", job.priority},
          {"guarantee_bytes", job.guarantee},
          {"in_force_bytes", job.in_force},
          {"covered_bytes", job.covered},
          {"limit_bytes", job.limit},
          {"charged_bytes", job.charged},
          {"used_bytes", used_of(job)},
          {"idle_bytes", job.idle},
          {"unspent_bytes", job.unspent},
          {"in_transit_bytes", job.in_transit},
          {"told_total_bytes", job.told_total},
          {"told_free_bytes", told_free_of(job)},
          {"peak_charged_bytes", row.peak_charged},
          {"sessions", job.sessions},
          {"grants", row.grants},
          {"refusals", row.refusals}};
}

Json session_json(const StatusAnswer& answer, const wire::SessionRow& row) {
  const SessionRecord& session = row.session;
  const ReportFigures& report = row.report;
  return {{"session", session.id},
          {"pid", session.pid},
          {"uid", session.uid},
          {"job", row.job_name.view()},
          {"label", session.label.view()},
          {"state", state_word(session.state)},
          {"reclaimable", (session.flags & SessionRecord::kReclaimable) != 0},
          {"told_bytes", session.told_total},
          {"charged_bytes", session.charged},
          {"used_bytes", used_of(session)},
          {"idle_bytes", session.idle},
          {"unspent_bytes", session.unspent},
          {"in_transit_bytes", session.in_transit},
          {"overhead_bytes", overhead_of(answer, row)},
          {"leases", session.leases},
          {"report",
           {{"bytes_in_use", report.bytes_in_use},
            {"bytes_cached", report.bytes_cached},
            {"peak_bytes_in_use", report.peak_bytes_in_use},
            {"largest_free_block_bytes", report.largest_free_block_bytes},
            {"num_allocs", report.num_allocs},
            {"num_frees", report.num_frees},
            {"fragmentation_ppm", report.fragmentation_ppm}}}};
}

Json broker_json(const wire::BrokerRow& broker) {
  const TotalsRecord& totals = broker.totals;
  return {{"device", broker.device_uuid.view()},
          {"device_name", broker.device_name.view()},
          {"simulated", (broker.flags & wire::BrokerRow::kSimulated) != 0},
          {"version", broker.version.view()},
          {"socket", broker.socket.view()},
          {"config", broker.config.view()},
          {"closed", broker.note.view()},
          {"pid", broker.pid},
          {"keeper_pid", broker.keeper_pid},
          {"restarts", broker.restarts},
          {"uptime_ms", broker.uptime_ms},
          {"device_bytes", totals.device_total},
          {"pool_bytes", totals.pool},
          {"chunk_bytes", totals.chunk},
          {"charged_bytes", totals.charged},
          {"in_transit_bytes", totals.in_transit},
          {"free_bytes", totals.free + totals.loose},
          {"loose_bytes", totals.loose},
          {"overhead_bytes", totals.overhead},
          {"helper_context_bytes", totals.helper_context},
          {"foreign_bytes", totals.foreign}};
}

}  // namespace

std::string status_json(const StatusAnswer& answer) {
  Json out = {{"broker", broker_json(answer.broker)},
              {"jobs", Json::array()},
              {"sessions", Json::array()},
              {"others", Json::array()}};
  for (const wire::JobRow& row : answer.jobs)
    out["jobs"].push_back(job_json(row));
  for (const wire::SessionRow& row : answer.sessions)
    out["sessions"].push_back(session_json(answer, row));
  for (const wire::HolderRow& holder : answer.holders)
    out["others"].push_back({{"kind", holder_word(holder.kind)},
                             {"pid", holder.pid},
                             {"uid", holder.uid},
                             {"name", holder.name.view()},
                             {"bytes", holder.bytes}});
  // Names come from processes and may be any bytes: what is not UTF-8 is replaced, never thrown.
  return out.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace apportion
