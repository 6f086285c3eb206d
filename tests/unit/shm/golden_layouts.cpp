#include "golden_layouts.hpp"

#include "shm/job_layout.hpp"
#include "shm/ledger_layout.hpp"
#include "shm/report_layout.hpp"
#include "shm/slot_pair.hpp"
#include "shm/wire.hpp"

namespace apportion::testing {

#define FIELD(type, name)                           \
  Field {                                           \
#name, offsetof(type, name), sizeof(type::name) \
  }

std::vector<Layout> layouts() {
  using namespace wire;
  std::vector<Layout> all;
  all.push_back({"Header",
                 sizeof(wire::Header),
                 {FIELD(wire::Header, magic), FIELD(wire::Header, major), FIELD(wire::Header, minor),
                  FIELD(wire::Header, type), FIELD(wire::Header, reserved), FIELD(wire::Header, size),
                  FIELD(wire::Header, request_id), FIELD(wire::Header, epoch)}});
  all.push_back({"Part",
                 sizeof(wire::Part),
                 {FIELD(wire::Part, part), FIELD(wire::Part, parts), FIELD(wire::Part, count),
                  FIELD(wire::Part, flags)}});
  all.push_back({"LayoutVersions",
                 sizeof(wire::LayoutVersions),
                 {FIELD(wire::LayoutVersions, ledger_major), FIELD(wire::LayoutVersions, ledger_minor),
                  FIELD(wire::LayoutVersions, job_page_major), FIELD(wire::LayoutVersions, job_page_minor),
                  FIELD(wire::LayoutVersions, report_page_major),
                  FIELD(wire::LayoutVersions, report_page_minor), FIELD(wire::LayoutVersions, reserved)}});
  all.push_back({"ChunkEntry",
                 sizeof(wire::ChunkEntry),
                 {FIELD(wire::ChunkEntry, chunk_id), FIELD(wire::ChunkEntry, bytes)}});
  all.push_back({"KeptEntry",
                 sizeof(wire::KeptEntry),
                 {FIELD(wire::KeptEntry, id), FIELD(wire::KeptEntry, bytes), FIELD(wire::KeptEntry, kind),
                  FIELD(wire::KeptEntry, reserved)}});
  all.push_back({"Hello",
                 sizeof(wire::Hello),
                 {FIELD(wire::Hello, header), FIELD(wire::Hello, job), FIELD(wire::Hello, label),
                  FIELD(wire::Hello, token), FIELD(wire::Hello, layouts), FIELD(wire::Hello, flags),
                  FIELD(wire::Hello, reserved)}});
  all.push_back({"Leases",
                 sizeof(wire::Leases),
                 {FIELD(wire::Leases, header), FIELD(wire::Leases, part), FIELD(wire::Leases, entries)}});
  all.push_back(
      {"Request",
       sizeof(wire::Request),
       {FIELD(wire::Request, header), FIELD(wire::Request, min_bytes), FIELD(wire::Request, want_bytes),
        FIELD(wire::Request, flags), FIELD(wire::Request, reserved)}});
  all.push_back({"GrantAck",
                 sizeof(wire::GrantAck),
                 {FIELD(wire::GrantAck, header), FIELD(wire::GrantAck, part), FIELD(wire::GrantAck, ids)}});
  all.push_back(
      {"GrantNack",
       sizeof(wire::GrantNack),
       {FIELD(wire::GrantNack, header), FIELD(wire::GrantNack, part), FIELD(wire::GrantNack, reason),
        FIELD(wire::GrantNack, reserved), FIELD(wire::GrantNack, ids)}});
  all.push_back({"Release",
                 sizeof(wire::Release),
                 {FIELD(wire::Release, header), FIELD(wire::Release, part), FIELD(wire::Release, ids)}});
  all.push_back({"Detach", sizeof(wire::Detach), {FIELD(wire::Detach, header)}});
  all.push_back({"StatusRequest",
                 sizeof(wire::StatusRequest),
                 {FIELD(wire::StatusRequest, header), FIELD(wire::StatusRequest, what),
                  FIELD(wire::StatusRequest, reserved)}});
  all.push_back({"Reclaimed",
                 sizeof(wire::Reclaimed),
                 {FIELD(wire::Reclaimed, header), FIELD(wire::Reclaimed, bytes), FIELD(wire::Reclaimed, code),
                  FIELD(wire::Reclaimed, reserved)}});
  all.push_back({"Welcome",
                 sizeof(wire::Welcome),
                 {FIELD(wire::Welcome, header),          FIELD(wire::Welcome, token),
                  FIELD(wire::Welcome, session_id),      FIELD(wire::Welcome, pool_bytes),
                  FIELD(wire::Welcome, chunk_bytes),     FIELD(wire::Welcome, device_total_bytes),
                  FIELD(wire::Welcome, guarantee_bytes), FIELD(wire::Welcome, in_force_bytes),
                  FIELD(wire::Welcome, covered_bytes),   FIELD(wire::Welcome, limit_bytes),
                  FIELD(wire::Welcome, used_bytes),      FIELD(wire::Welcome, told_total_bytes),
                  FIELD(wire::Welcome, wait_ms),         FIELD(wire::Welcome, idle_return_ms),
                  FIELD(wire::Welcome, layouts),         FIELD(wire::Welcome, flags),
                  FIELD(wire::Welcome, broker_pid),      FIELD(wire::Welcome, job),
                  FIELD(wire::Welcome, device_uuid),     FIELD(wire::Welcome, device_name),
                  FIELD(wire::Welcome, driver_path),     FIELD(wire::Welcome, cudasim_dir)}});
  all.push_back(
      {"Refused",
       sizeof(wire::Refused),
       {FIELD(wire::Refused, header), FIELD(wire::Refused, code), FIELD(wire::Refused, refused_type),
        FIELD(wire::Refused, reserved), FIELD(wire::Refused, text)}});
  all.push_back({"Grant",
                 sizeof(wire::Grant),
                 {FIELD(wire::Grant, header), FIELD(wire::Grant, part), FIELD(wire::Grant, kind),
                  FIELD(wire::Grant, flags), FIELD(wire::Grant, entries)}});
  all.push_back({"Refusal",
                 sizeof(wire::Refusal),
                 {FIELD(wire::Refusal, header), FIELD(wire::Refusal, code), FIELD(wire::Refusal, reserved),
                  FIELD(wire::Refusal, asked_bytes), FIELD(wire::Refusal, used_bytes),
                  FIELD(wire::Refusal, guarantee_bytes), FIELD(wire::Refusal, covered_bytes),
                  FIELD(wire::Refusal, limit_bytes), FIELD(wire::Refusal, headroom_bytes),
                  FIELD(wire::Refusal, free_bytes), FIELD(wire::Refusal, text)}});
  all.push_back({"Released",
                 sizeof(wire::Released),
                 {FIELD(wire::Released, header), FIELD(wire::Released, bytes), FIELD(wire::Released, chunks),
                  FIELD(wire::Released, unknown)}});
  all.push_back(
      {"Detached", sizeof(wire::Detached), {FIELD(wire::Detached, header), FIELD(wire::Detached, bytes)}});
  all.push_back(
      {"Reclaim",
       sizeof(wire::Reclaim),
       {FIELD(wire::Reclaim, header), FIELD(wire::Reclaim, bytes), FIELD(wire::Reclaim, deadline_ms)}});
  all.push_back(
      {"StatusBroker",
       sizeof(wire::StatusBroker),
       {FIELD(wire::StatusBroker, header), FIELD(wire::StatusBroker, part), FIELD(wire::StatusBroker, row)}});
  all.push_back(
      {"StatusJobs",
       sizeof(wire::StatusJobs),
       {FIELD(wire::StatusJobs, header), FIELD(wire::StatusJobs, part), FIELD(wire::StatusJobs, rows)}});
  all.push_back({"StatusSessions",
                 sizeof(wire::StatusSessions),
                 {FIELD(wire::StatusSessions, header), FIELD(wire::StatusSessions, part),
                  FIELD(wire::StatusSessions, rows)}});
  all.push_back({"StatusHolders",
                 sizeof(wire::StatusHolders),
                 {FIELD(wire::StatusHolders, header), FIELD(wire::StatusHolders, part),
                  FIELD(wire::StatusHolders, rows)}});
  all.push_back(
      {"BrokerRow",
       sizeof(wire::BrokerRow),
       {FIELD(wire::BrokerRow, totals), FIELD(wire::BrokerRow, device_uuid),
        FIELD(wire::BrokerRow, device_name), FIELD(wire::BrokerRow, version), FIELD(wire::BrokerRow, socket),
        FIELD(wire::BrokerRow, config), FIELD(wire::BrokerRow, note), FIELD(wire::BrokerRow, pid),
        FIELD(wire::BrokerRow, keeper_pid), FIELD(wire::BrokerRow, uptime_ms),
        FIELD(wire::BrokerRow, generation), FIELD(wire::BrokerRow, jobs), FIELD(wire::BrokerRow, sessions),
        FIELD(wire::BrokerRow, flags), FIELD(wire::BrokerRow, restarts)}});
  all.push_back({"JobRow",
                 sizeof(wire::JobRow),
                 {FIELD(wire::JobRow, job), FIELD(wire::JobRow, peak_charged), FIELD(wire::JobRow, grants),
                  FIELD(wire::JobRow, refusals), FIELD(wire::JobRow, waiting)}});
  all.push_back({"SessionRow",
                 sizeof(wire::SessionRow),
                 {FIELD(wire::SessionRow, session), FIELD(wire::SessionRow, job_name),
                  FIELD(wire::SessionRow, report)}});
  all.push_back({"HolderRow",
                 sizeof(wire::HolderRow),
                 {FIELD(wire::HolderRow, bytes), FIELD(wire::HolderRow, pid), FIELD(wire::HolderRow, uid),
                  FIELD(wire::HolderRow, kind), FIELD(wire::HolderRow, reserved),
                  FIELD(wire::HolderRow, session_id), FIELD(wire::HolderRow, name)}});
  all.push_back({"Put",
                 sizeof(wire::Put),
                 {FIELD(wire::Put, header), FIELD(wire::Put, part), FIELD(wire::Put, entries)}});
  all.push_back({"Del",
                 sizeof(wire::Del),
                 {FIELD(wire::Del, header), FIELD(wire::Del, part), FIELD(wire::Del, entries)}});
  all.push_back({"Ack",
                 sizeof(wire::Ack),
                 {FIELD(wire::Ack, header), FIELD(wire::Ack, count), FIELD(wire::Ack, code),
                  FIELD(wire::Ack, reserved)}});
  all.push_back({"Ping", sizeof(wire::Ping), {FIELD(wire::Ping, header)}});
  all.push_back({"Pong", sizeof(wire::Pong), {FIELD(wire::Pong, header)}});
  all.push_back({"Take", sizeof(wire::Take), {FIELD(wire::Take, header)}});
  all.push_back({"Ready", sizeof(wire::Ready), {FIELD(wire::Ready, header)}});
  all.push_back({"Scrub",
                 sizeof(wire::Scrub),
                 {FIELD(wire::Scrub, header), FIELD(wire::Scrub, part), FIELD(wire::Scrub, entries)}});
  all.push_back({"Scrubbed",
                 sizeof(wire::Scrubbed),
                 {FIELD(wire::Scrubbed, header), FIELD(wire::Scrubbed, code), FIELD(wire::Scrubbed, tried),
                  FIELD(wire::Scrubbed, text)}});
  all.push_back({"SlabPlace",
                 sizeof(wire::SlabPlace),
                 {FIELD(wire::SlabPlace, lease_id), FIELD(wire::SlabPlace, bytes),
                  FIELD(wire::SlabPlace, place), FIELD(wire::SlabPlace, reserved)}});
  all.push_back(
      {"SlabGrant",
       sizeof(wire::SlabGrant),
       {FIELD(wire::SlabGrant, header), FIELD(wire::SlabGrant, part), FIELD(wire::SlabGrant, entries)}});
  all.push_back({"SlabsLost",
                 sizeof(wire::SlabsLost),
                 {FIELD(wire::SlabsLost, header), FIELD(wire::SlabsLost, part), FIELD(wire::SlabsLost, text),
                  FIELD(wire::SlabsLost, ids)}});
  all.push_back({"MakeSlab",
                 sizeof(wire::MakeSlab),
                 {FIELD(wire::MakeSlab, header), FIELD(wire::MakeSlab, id), FIELD(wire::MakeSlab, bytes)}});
  all.push_back({"SlabMade",
                 sizeof(wire::SlabMade),
                 {FIELD(wire::SlabMade, header), FIELD(wire::SlabMade, code), FIELD(wire::SlabMade, tried),
                  FIELD(wire::SlabMade, handle), FIELD(wire::SlabMade, text)}});
  all.push_back(
      {"ScrubSlabs",
       sizeof(wire::ScrubSlabs),
       {FIELD(wire::ScrubSlabs, header), FIELD(wire::ScrubSlabs, part), FIELD(wire::ScrubSlabs, ids)}});
  all.push_back(
      {"FreeSlab", sizeof(wire::FreeSlab), {FIELD(wire::FreeSlab, header), FIELD(wire::FreeSlab, id)}});
  all.push_back({"SlabFreed",
                 sizeof(wire::SlabFreed),
                 {FIELD(wire::SlabFreed, header), FIELD(wire::SlabFreed, code), FIELD(wire::SlabFreed, tried),
                  FIELD(wire::SlabFreed, text)}});
  all.push_back({"SlabEntry",
                 sizeof(SlabEntry),
                 {FIELD(SlabEntry, lease_id), FIELD(SlabEntry, bytes), FIELD(SlabEntry, handle)}});
  all.push_back({"PageHeader",
                 sizeof(PageHeader),
                 {FIELD(PageHeader, magic), FIELD(PageHeader, major), FIELD(PageHeader, minor),
                  FIELD(PageHeader, page_bytes), FIELD(PageHeader, epoch), FIELD(PageHeader, header_bytes)}});
  all.push_back(
      {"SlotPairHeader",
       sizeof(SlotPairHeader),
       {FIELD(SlotPairHeader, offset), FIELD(SlotPairHeader, slot_bytes), FIELD(SlotPairHeader, latest)}});
  all.push_back(
      {"SlotHeader",
       sizeof(SlotHeader),
       {FIELD(SlotHeader, generation), FIELD(SlotHeader, payload_words), FIELD(SlotHeader, checksum)}});
  all.push_back(
      {"LedgerHeader",
       sizeof(LedgerHeader),
       {FIELD(LedgerHeader, device_uuid), FIELD(LedgerHeader, device_name), FIELD(LedgerHeader, slots),
        FIELD(LedgerHeader, totals_bytes), FIELD(LedgerHeader, job_stride),
        FIELD(LedgerHeader, session_stride), FIELD(LedgerHeader, max_jobs), FIELD(LedgerHeader, max_sessions),
        FIELD(LedgerHeader, reserved)}});
  all.push_back({"LedgerCounts",
                 sizeof(LedgerCounts),
                 {FIELD(LedgerCounts, jobs), FIELD(LedgerCounts, sessions), FIELD(LedgerCounts, jobs_total),
                  FIELD(LedgerCounts, sessions_total)}});
  all.push_back({"TotalsRecord",
                 sizeof(TotalsRecord),
                 {FIELD(TotalsRecord, device_total), FIELD(TotalsRecord, pool), FIELD(TotalsRecord, chunk),
                  FIELD(TotalsRecord, charged), FIELD(TotalsRecord, in_transit), FIELD(TotalsRecord, free),
                  FIELD(TotalsRecord, loose), FIELD(TotalsRecord, foreign), FIELD(TotalsRecord, overhead),
                  FIELD(TotalsRecord, helper_context)}});
  all.push_back({"JobRecord",
                 sizeof(JobRecord),
                 {FIELD(JobRecord, name), FIELD(JobRecord, guarantee), FIELD(JobRecord, in_force),
                  FIELD(JobRecord, covered), FIELD(JobRecord, limit), FIELD(JobRecord, charged),
                  FIELD(JobRecord, idle), FIELD(JobRecord, unspent), FIELD(JobRecord, in_transit),
                  FIELD(JobRecord, pressure), FIELD(JobRecord, told_total), FIELD(JobRecord, priority),
                  FIELD(JobRecord, sessions), FIELD(JobRecord, flags), FIELD(JobRecord, reserved)}});
  all.push_back(
      {"SessionRecord",
       sizeof(SessionRecord),
       {FIELD(SessionRecord, id), FIELD(SessionRecord, pid), FIELD(SessionRecord, uid),
        FIELD(SessionRecord, job), FIELD(SessionRecord, state), FIELD(SessionRecord, flags),
        FIELD(SessionRecord, leases), FIELD(SessionRecord, charged), FIELD(SessionRecord, idle),
        FIELD(SessionRecord, unspent), FIELD(SessionRecord, in_transit), FIELD(SessionRecord, told_total),
        FIELD(SessionRecord, pid_start_time), FIELD(SessionRecord, label)}});
  all.push_back({"JobPageHeader",
                 sizeof(JobPageHeader),
                 {FIELD(JobPageHeader, job), FIELD(JobPageHeader, slots), FIELD(JobPageHeader, figures_bytes),
                  FIELD(JobPageHeader, slab_table_version), FIELD(JobPageHeader, slab_count),
                  FIELD(JobPageHeader, slab_table_offset)}});
  all.push_back(
      {"JobFigures",
       sizeof(JobFigures),
       {FIELD(JobFigures, guarantee), FIELD(JobFigures, in_force), FIELD(JobFigures, covered),
        FIELD(JobFigures, limit), FIELD(JobFigures, used), FIELD(JobFigures, charged),
        FIELD(JobFigures, told_total), FIELD(JobFigures, told_free),
        FIELD(JobFigures, told_total_reclaimable), FIELD(JobFigures, told_free_reclaimable),
        FIELD(JobFigures, pressure), FIELD(JobFigures, reclaim_target), FIELD(JobFigures, sessions)}});
  all.push_back({"ReportHeader",
                 sizeof(ReportHeader),
                 {FIELD(ReportHeader, session_id), FIELD(ReportHeader, figures_bytes),
                  FIELD(ReportHeader, unspent_credit), FIELD(ReportHeader, writer_pid)}});
  all.push_back({"ReportFigures",
                 sizeof(ReportFigures),
                 {FIELD(ReportFigures, bytes_in_use),
                  FIELD(ReportFigures, bytes_cached),
                  FIELD(ReportFigures, bytes_reserved),
                  FIELD(ReportFigures, bytes_limit),
                  FIELD(ReportFigures, bytes_reservable_limit),
                  FIELD(ReportFigures, peak_bytes_in_use),
                  FIELD(ReportFigures, peak_bytes_reserved),
                  FIELD(ReportFigures, largest_alloc_size),
                  FIELD(ReportFigures, largest_free_block_bytes),
                  FIELD(ReportFigures, pool_bytes),
                  FIELD(ReportFigures, peak_pool_bytes),
                  FIELD(ReportFigures, bytes_idle),
                  FIELD(ReportFigures, num_allocs),
                  FIELD(ReportFigures, num_frees),
                  FIELD(ReportFigures, fragmentation_ppm),
                  FIELD(ReportFigures, hits_magazine),
                  FIELD(ReportFigures, hits_stream),
                  FIELD(ReportFigures, hits_free_list),
                  FIELD(ReportFigures, hits_spare),
                  FIELD(ReportFigures, hits_grown)}});
  return all;
}

}  // namespace apportion::testing
