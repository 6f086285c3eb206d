// A status answer made by hand: an 80 GiB device, two jobs, three sessions, a stranger.
#pragma once

#include "cli/status_query.hpp"
#include "shm/bytes.hpp"

namespace apportion::testing {

inline constexpr std::uint64_t kGiB = 1ULL << 30;

inline wire::SessionRow session_row(std::uint64_t id, std::uint32_t pid, const char* job, const char* label,
                                    SessionState state, std::uint64_t charged) {
  wire::SessionRow row;
  row.session.id = id;
  row.session.pid = pid;
  row.session.uid = 4000000001U;  // nobody has this one, so that the name is the number
  row.session.state = static_cast<std::uint32_t>(state);
  row.session.charged = charged;
  row.session.told_total = 16 * kGiB;
  row.session.label.set(label);
  row.job_name.set(job);
  return row;
}

inline wire::HolderRow holder_row(wire::HolderKind kind, std::uint32_t pid, const char* name,
                                  std::uint64_t bytes) {
  wire::HolderRow row;
  row.kind = static_cast<std::uint32_t>(kind);
  row.pid = pid;
  row.uid = 4000000002U;
  row.name.set(name);
  row.bytes = bytes;
  return row;
}

inline StatusAnswer hand_made_answer() {
  StatusAnswer answer;
  wire::BrokerRow& broker = answer.broker;
  broker.device_uuid.set("GPU-0");
  broker.device_name.set("Some GPU");
  broker.version.set("0.1.0");
  broker.socket.set("/run/apportion/GPU-0/broker.sock");
  broker.config.set("/etc/apportion/apportion.toml");
  broker.pid = 101;
  broker.keeper_pid = 100;
  broker.uptime_ms = 61999;
  broker.totals = {.device_total = 80 * kGiB,
                   .pool = 64 * kGiB,
                   .chunk = kGiB / 32,
                   .charged = 20 * kGiB,
                   .in_transit = kGiB,
                   .free = 40 * kGiB,
                   .loose = 3 * kGiB,
                   .foreign = 2 * kGiB,
                   .overhead = 15 * kGiB,
                   .helper_context = kGiB / 2};

  wire::JobRow trainer;
  trainer.job.name.set("trainer");
  trainer.job.guarantee = 16 * kGiB;
  trainer.job.in_force = 16 * kGiB;
  trainer.job.covered = 8 * kGiB;
  trainer.job.limit = 32 * kGiB;
  trainer.job.charged = 20 * kGiB;
  trainer.job.idle = 4 * kGiB;
  trainer.job.unspent = kGiB;
  trainer.job.in_transit = 2 * kGiB;
  trainer.job.told_total = 16 * kGiB;
  trainer.job.sessions = 2;
  trainer.grants = 7;
  trainer.refusals = 1;
  trainer.peak_charged = 21 * kGiB;
  wire::JobRow quiet;
  quiet.job.name.set("quiet");
  quiet.job.limit = 64 * kGiB;
  quiet.job.told_total = 64 * kGiB;
  answer.jobs = {trainer, quiet};

  wire::SessionRow first = session_row(1, 201, "trainer", "python", SessionState::attached, 12 * kGiB);
  first.session.idle = 4 * kGiB;
  first.session.flags = SessionRecord::kReclaimable;
  first.session.leases = 3;
  wire::SessionRow dead = session_row(2, 0, "trainer", "gone", SessionState::zombie, 8 * kGiB);
  dead.session.in_transit = 8 * kGiB;
  answer.sessions = {first, dead};

  wire::HolderRow context = holder_row(wire::HolderKind::context, 201, "python3", kGiB / 2);
  context.session_id = 1;
  answer.holders = {context, holder_row(wire::HolderKind::foreign, 301, "stranger", kGiB),
                    holder_row(wire::HolderKind::foreign_rest, 0, "", kGiB)};
  return answer;
}

}  // namespace apportion::testing
