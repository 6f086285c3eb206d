// Answers STATUS_REQUEST: the ledger's records, and who else is on the device.
//
// Promises: the rows of one answer are of one moment of the book. Never: asks the driver or /proc; the
// reading of the device is given. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "broker/figures.hpp"
#include "broker/pool.hpp"
#include "broker/publisher.hpp"
#include "shm/wire.hpp"

namespace apportion {

struct StatusFacts {
  std::string device_uuid;
  std::string device_name;
  std::string socket;
  std::string config;
  std::string note;  // why closed; empty when open
  std::uint32_t keeper_pid = 0;
  std::uint64_t uptime_ms = 0;
  std::uint32_t restarts = 0;
  bool simulated = false;
  bool leased = false;  // reserve = "leased"
  std::uint64_t epoch = 1;
};

// Splits the device's processes: the broker's own is the pool (`reserved`: what of it is taken from the
// device, by this broker or one before it); a session's is overhead (its context and libraries), and so is
// that of the broker's helper, less the slabs that it has for the pool; every other one is foreign; what no
// process accounts for is the rest.
[[nodiscard]] std::vector<wire::HolderRow> holder_rows(const LedgerSnapshot& snapshot, const Pool::Room& room,
                                                       Bytes reserved, std::int32_t helper_pid,
                                                       Bytes slabs = {});

// "; on the device now: 30 GiB of python (pid 12, uid 1000)", largest first, at most four; empty where nobody
// but us is known.
[[nodiscard]] std::string others_on(const Pool::Room& room);

using SendRow = std::function<void(std::span<const std::byte>)>;
// `counters`: one for each of snapshot.jobs.
void send_status(const StatusFacts& facts, const LedgerSnapshot& snapshot, const Publisher& pages,
                 std::span<const JobCounters> counters, std::span<const wire::HolderRow> holders,
                 const wire::StatusRequest& request, const SendRow& send);

}  // namespace apportion
