// One valid message of every type, with every field set: for the golden test, the decoder's tests and the
// fuzzer's first corpus.
#pragma once

#include <vector>

#include "shm/wire.hpp"

namespace apportion::testing {

inline wire::LayoutVersions sample_layouts() {
  return {1, 0, 1, 0, 1, 0, 0};
}

inline wire::Token sample_token() {
  wire::Token token;
  for (std::size_t i = 0; i < token.bytes.size(); ++i)
    token.bytes[i] = static_cast<std::uint8_t>(0xa0 + i);
  return token;
}

inline IpcHandle sample_handle() {
  IpcHandle handle;
  for (std::size_t i = 0; i < handle.size(); ++i)
    handle[i] = static_cast<std::uint8_t>(0xd0 + i);
  return handle;
}

inline JobRecord sample_job() {
  JobRecord job;
  job.name.set("trainer");
  job.guarantee = 0x11;
  job.in_force = 0x12;
  job.covered = 0x13;
  job.limit = 0x14;
  job.charged = 0x15;
  job.idle = 0x16;
  job.unspent = 0x17;
  job.in_transit = 0x18;
  job.pressure = 0x19;
  job.told_total = 0x1a;
  job.priority = -2;
  job.sessions = 3;
  job.flags = JobRecord::kNoLend;
  return job;
}

inline SessionRecord sample_session() {
  SessionRecord session;
  session.id = 0x21;
  session.pid = 4242;
  session.uid = 1000;
  session.job = 1;
  session.state = static_cast<std::uint32_t>(SessionState::attached);
  session.flags = SessionRecord::kReclaimable;
  session.leases = 5;
  session.charged = 0x22;
  session.idle = 0x23;
  session.unspent = 0x24;
  session.in_transit = 0x25;
  session.told_total = 0x26;
  session.pid_start_time = 0x27;
  session.label.set("python");
  return session;
}

inline TotalsRecord sample_totals() {
  return {80, 73, 1, 20, 2, 50, 1, 3, 6, 1};
}

inline ReportFigures sample_figures() {
  ReportFigures figures;
  auto* words = reinterpret_cast<std::uint64_t*>(&figures);
  for (std::size_t i = 0; i < sizeof figures / sizeof *words; ++i)
    words[i] = 0x31 + i;
  return figures;
}

template <typename M>
M numbered_list(std::uint32_t count) {
  M message = wire::make<M>(7, 3);
  message.part = {1, 4, count, 0};
  for (std::uint32_t i = 0; i < count; ++i)
    message.ids[i] = 0x41 + i;
  return message;
}

template <typename M>
M kept_list() {
  M message = wire::make<M>(7, 3);
  message.part = {0, 1, 4, wire::kLast};
  for (std::uint32_t i = 0; i < 4; ++i)
    message.entries[i] = {0x51 + i, 0x2000000, i + 1, 0};
  return message;
}

inline std::vector<wire::Message> sample_messages() {
  using namespace wire;
  std::vector<Message> all;

  auto hello = make<Hello>(7, 0);
  hello.job.set("trainer");
  hello.label.set("python train.py");
  hello.token = sample_token();
  hello.layouts = sample_layouts();
  hello.flags = Hello::kReclaimable;
  all.emplace_back(hello);

  auto leases = make<Leases>(7, 3);
  leases.part = {0, 2, 2, 0};
  leases.entries[0] = {0x61, 0x2000000};
  leases.entries[1] = {0x62, 0x4000000};
  all.emplace_back(leases);

  auto request = make<Request>(7, 3);
  request.min_bytes = 0x2000000;
  request.want_bytes = 0x40000000;
  request.flags = Request::kMayWait;
  all.emplace_back(request);

  all.emplace_back(numbered_list<GrantAck>(3));
  auto nack = numbered_list<GrantNack>(2);
  nack.reason = static_cast<std::uint32_t>(Errc::system);
  all.emplace_back(nack);
  all.emplace_back(numbered_list<Release>(kMaxIds));
  all.emplace_back(make<Detach>(7, 3));
  all.emplace_back(make<StatusRequest>(7, 3));
  auto reclaimed = make<Reclaimed>(7, 3);
  reclaimed.bytes = 0x4000000;
  reclaimed.code = 1 + static_cast<std::uint32_t>(Errc::busy);
  all.emplace_back(reclaimed);

  auto welcome = make<Welcome>(7, 3);
  welcome.token = sample_token();
  std::uint64_t figure = 0x71;
  for (std::uint64_t* field :
       {&welcome.session_id, &welcome.pool_bytes, &welcome.chunk_bytes, &welcome.device_total_bytes,
        &welcome.guarantee_bytes, &welcome.in_force_bytes, &welcome.covered_bytes, &welcome.limit_bytes,
        &welcome.used_bytes, &welcome.told_total_bytes, &welcome.wait_ms, &welcome.idle_return_ms}) {
    *field = figure++;
  }
  welcome.layouts = sample_layouts();
  welcome.flags = Welcome::kSimulated;
  welcome.broker_pid = 99;
  welcome.job.set("trainer");
  welcome.device_uuid.set("GPU-00000000-0000-0000-0000-000000000001");
  welcome.device_name.set("Simulated device");
  welcome.driver_path.set("/opt/sim/libcuda.so.1");
  welcome.cudasim_dir.set("/dev/shm/sim");
  all.emplace_back(welcome);

  auto refused = make<Refused>(7, 3);
  refused.code = static_cast<std::uint32_t>(Errc::denied);
  refused.refused_type = static_cast<std::uint16_t>(Type::hello);
  refused.text.set("job \"trainer\" is for alice; ask for another job");
  all.emplace_back(refused);

  auto grant = make<Grant>(7, 3);
  grant.part = {0, 1, 2, kLast};
  grant.flags = Grant::kScrubbed;
  grant.entries[0] = {0x81, 0x2000000};
  grant.entries[1] = {0x82, 0x2000000};
  all.emplace_back(grant);

  auto slab_grant = make<SlabGrant>(7, 3);
  slab_grant.part = {0, 1, 2, kLast};
  slab_grant.entries[0] = {0x83, 0x2000000, 5, 0};
  slab_grant.entries[1] = {0x84, 0x4000000, 6, 0};
  all.emplace_back(slab_grant);
  auto lost = make<SlabsLost>(0, 3);
  lost.part = {0, 1, 2, kLast};
  lost.text.set("the helper died; close what is open of them");
  lost.ids[0] = 0x83;
  lost.ids[1] = 0x84;
  all.emplace_back(lost);

  auto refusal = make<Refusal>(7, 3);
  refusal.code = static_cast<std::uint32_t>(Errc::quota);
  figure = 0x91;
  for (std::uint64_t* field :
       {&refusal.asked_bytes, &refusal.used_bytes, &refusal.guarantee_bytes, &refusal.covered_bytes,
        &refusal.limit_bytes, &refusal.headroom_bytes, &refusal.free_bytes}) {
    *field = figure++;
  }
  refusal.text.set("job notebook (pid 12, alice) holds 4 GiB");
  all.emplace_back(refusal);

  auto released = make<Released>(7, 3);
  released.bytes = 0x4000000;
  released.chunks = 2;
  released.unknown = 1;
  all.emplace_back(released);
  auto detached = make<Detached>(7, 3);
  detached.bytes = 0x4000000;
  all.emplace_back(detached);
  auto reclaim = make<Reclaim>(7, 3);
  reclaim.bytes = 0x4000000;
  reclaim.deadline_ms = 2000;
  all.emplace_back(reclaim);

  auto broker = make<StatusBroker>(7, 3);
  broker.part = {0, 1, 1, 0};
  broker.row.totals = sample_totals();
  broker.row.device_uuid.set("GPU-1");
  broker.row.device_name.set("Simulated device");
  broker.row.version.set("0.1.0");
  broker.row.socket.set("/run/apportion/GPU-1/broker.sock");
  broker.row.config.set("/etc/apportion/apportion.toml");
  broker.row.note.set("closed: restarted without recovery");
  broker.row.pid = 10;
  broker.row.keeper_pid = 9;
  broker.row.uptime_ms = 1234;
  broker.row.generation = 5;
  broker.row.jobs = 2;
  broker.row.sessions = 3;
  broker.row.flags = BrokerRow::kClosed;
  broker.row.restarts = 1;
  all.emplace_back(broker);

  auto jobs = make<StatusJobs>(7, 3);
  jobs.part = {0, 1, 1, 0};
  jobs.rows[0] = {sample_job(), 0xa1, 0xa2, 0xa3, 0xa4};
  all.emplace_back(jobs);
  auto sessions = make<StatusSessions>(7, 3);
  sessions.part = {0, 1, 1, 0};
  sessions.rows[0] = {sample_session(), Text<64>("trainer"), sample_figures()};
  all.emplace_back(sessions);
  auto holders = make<StatusHolders>(7, 3);
  holders.part = {0, 1, 1, kLast};
  holders.rows[0] = {
      0xb1, 12, 1000, static_cast<std::uint32_t>(HolderKind::zombie), 0, 0xb2, Text<64>("trainer")};
  all.emplace_back(holders);

  all.emplace_back(kept_list<Put>());
  all.emplace_back(kept_list<Del>());
  auto ack = make<Ack>(7, 3);
  ack.count = 4;
  ack.code = 1 + static_cast<std::uint32_t>(Errc::system);
  all.emplace_back(ack);
  all.emplace_back(make<Ping>(7, 3));
  all.emplace_back(make<Pong>(7, 3));
  all.emplace_back(make<Take>(7, 3));
  all.emplace_back(make<Ready>(7, 3));

  auto scrub = make<wire::Scrub>(7, 0);
  scrub.part.count = 3;
  for (std::size_t i = 0; i < 3; ++i)
    scrub.entries[i] = {0xc1 + i, 0x2000000};
  all.emplace_back(scrub);
  auto scrubbed = make<Scrubbed>(7, 0);
  scrubbed.code = 1 + static_cast<std::uint32_t>(Errc::out_of_memory);
  scrubbed.text.set("no context: cuDevicePrimaryCtxRetain: out of memory");
  all.emplace_back(scrubbed);
  auto make_slab = make<MakeSlab>(7, 0);
  make_slab.id = 0x83;
  make_slab.bytes = 0x2000000;
  all.emplace_back(make_slab);
  auto slab_made = make<SlabMade>(7, 0);
  slab_made.handle = sample_handle();
  slab_made.text.set("");
  all.emplace_back(slab_made);
  auto scrub_slabs = make<ScrubSlabs>(7, 0);
  scrub_slabs.part.count = 2;
  scrub_slabs.ids[0] = 0x83;
  scrub_slabs.ids[1] = 0x84;
  all.emplace_back(scrub_slabs);
  auto free_slab = make<FreeSlab>(7, 0);
  free_slab.id = 0x83;
  all.emplace_back(free_slab);
  auto slab_freed = make<SlabFreed>(7, 0);
  slab_freed.code = 1 + static_cast<std::uint32_t>(Errc::driver);
  slab_freed.text.set("cuMemFree: CUDA_ERROR_UNKNOWN");
  all.emplace_back(slab_freed);
  return all;
}

inline wire::Sender sender_of(const wire::Message& message) {
  const std::uint16_t type = wire::header_of(message).type;
  if (type < 65) return wire::Sender::client;
  if (type < 129) return wire::Sender::broker;
  return type < 193 ? wire::Sender::keeper_pair : wire::Sender::helper_pair;
}

}  // namespace apportion::testing
