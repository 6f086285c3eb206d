#include "broker/setup.hpp"

#include "shm/result.hpp"

namespace apportion {

CoreSetup core_setup(const Config& config, const LoadReport& report, std::uint64_t epoch) {
  APPORTION_CHECK(report.ok() && report.jobs.size() == config.jobs.size());
  CoreSetup setup;
  setup.pool = report.pool;
  setup.chunk = report.chunk;
  if (report.device.granularity.value != 0) setup.granularity = report.device.granularity;
  setup.device_total = report.device.total;
  setup.overhead = report.overhead;
  setup.helper_context = report.device.helper_context;
  setup.reserve = report.reserve;
  setup.sessions_per_uid = config.broker.sessions_per_uid;
  setup.reclaim_deadline_ns = config.broker.reclaim_deadline.count() * 1'000'000;
  setup.epoch = epoch;
  for (std::size_t i = 0; i < config.jobs.size(); ++i) {
    const JobConfig& job = config.jobs[i];
    const JobQuota& quota = report.jobs[i];
    JobRule rule;
    rule.name = job.name;
    rule.guarantee = quota.guarantee;
    rule.limit = quota.limit;
    rule.told = quota.told;
    rule.told_reclaimable = quota.told_reclaimable;
    rule.priority = job.priority;
    rule.hold = job.hold;
    rule.on_return = job.return_rule;
    rule.scrub = job.scrub;
    rule.transport = job.transport;
    rule.lend = job.lend;
    rule.wait_ns = job.wait.count() * 1'000'000;
    rule.users = job.users;
    setup.jobs.push_back(std::move(rule));
  }
  return setup;
}

}  // namespace apportion
