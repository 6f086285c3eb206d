#include "config/load.hpp"

#include <algorithm>
#include <utility>

#include "shm/quote.hpp"

namespace apportion {
namespace {

constexpr Bytes kLeastOverhead = 2_GiB;
constexpr std::uint64_t kOverheadPercent = 8;
constexpr Bytes kLeastDisplayOverhead = 3_GiB;
constexpr Bytes kDisplayRoom = 1536_MiB;

std::string chunks_text(std::uint64_t count) {
  return std::to_string(count) + (count == 1 ? " chunk" : " chunks");
}

// Rounded once: a fraction of `whole` down, a size up.
std::uint64_t whole_chunks(const Amount& amount, Bytes whole, Bytes chunk) {
  if (const Fraction* fraction = std::get_if<Fraction>(&amount)) return fraction->of(whole) / chunk;
  return round_up(std::get<Bytes>(amount), chunk) / chunk;
}

class Loader {
 public:
  Loader(const Config& config, const DeviceFacts& device) : config_(config) {
    report_.device = device;
    report_.device.in_use = std::min(device.in_use, device.total);
    report_.chunk = config.broker.chunk;
  }

  LoadReport run() {
    if (!check_device()) return std::move(report_);
    settle_reserve();
    if (!settle_pool()) return std::move(report_);
    for (const JobConfig& job : config_.jobs)
      settle_job(job);
    check_promises();
    if (config_.jobs.empty()) {
      warn("jobs", "no job is named; nobody can hold memory until there is a [jobs.NAME]");
    }
    return std::move(report_);
  }

 private:
  void refuse(const std::string& key, const std::string& what) {
    report_.refusals.push_back(config_.where(key) + ": " + what);
  }
  void warn(const std::string& key, const std::string& what) {
    report_.warnings.push_back(config_.where(key) + ": " + what);
  }

  // A driver that answers nonsense must end in a sentence, not in a wrapped sum.
  bool check_device() {
    const DeviceFacts& device = report_.device;
    if (device.total == 0_B || device.total > kMaxSize || device.helper_context > kMaxSize) {
      refuse("broker.device", "the device reports a total of " + spell(device.total) +
                                  " and a helper context of " + spell(device.helper_context) +
                                  ", which cannot be; check the driver");
    } else if (device.granularity == 0_B || report_.chunk.value % device.granularity.value != 0) {
      refuse("broker.chunk", "broker.chunk: " + in_quotes(spell(report_.chunk)) +
                                 " is no multiple of what the device allocates at once, " +
                                 spell(device.granularity) + "; write a multiple of it");
    }
    return report_.ok();
  }

  void settle_reserve() {
    const DeviceFacts& device = report_.device;
    if (config_.broker.reserve) {
      report_.reserve = *config_.broker.reserve;
      report_.reserve_rule = "as written";
    } else if (device.display || device.integrated) {
      report_.reserve = Reserve::leased;
      report_.reserve_rule =
          device.display ? "a display runs on the device" : "the device's memory is the host's";
    } else {
      report_.reserve = Reserve::all;
      report_.reserve_rule = "no display, memory of its own";
    }
  }

  bool settle_pool() {
    const Bytes total = report_.device.total;
    const Bytes helper = report_.device.helper_context;
    const std::optional<Amount>& pool = config_.broker.pool;
    const std::optional<Amount>& overhead = config_.broker.overhead;
    if (overhead) {
      const Fraction* fraction = std::get_if<Fraction>(&*overhead);
      report_.overhead = fraction != nullptr ? fraction->of(total) : std::get<Bytes>(*overhead);
      report_.overhead_rule =
          "as written: " + config_.written("broker.overhead", in_quotes(spell(*overhead)));
    } else if (!pool) {
      report_.overhead = automatic_overhead(report_.device);
      report_.overhead_rule =
          report_.device.display ? "max(3 GiB, in use + 1.5 GiB)" : "max(2 GiB, 8 % of the device)";
    }
    report_.pool_rule = pool ? config_.written("broker.pool", in_quotes(spell(*pool))) : "\"auto\"";
    report_.pool_chunks = pool ? whole_chunks(*pool, total, report_.chunk)
                               : saturating_sub(total, report_.overhead + helper) / report_.chunk;
    report_.pool = report_.chunk * report_.pool_chunks;
    if (report_.pool_chunks == 0) {
      refuse("broker.pool", "broker.pool: not one chunk of " + spell(report_.chunk) + " is left: device " +
                                to_text(total) + ", pool = " + report_.pool_rule + ", overhead " +
                                to_text(report_.overhead) + ", helper context " + to_text(helper) +
                                "; lower overhead, or write a larger pool");
      return false;
    }
    if (pool && !overhead) {
      report_.overhead = saturating_sub(total, report_.pool + helper);
      report_.overhead_rule = "what remains";
    }
    const Bytes sum = report_.pool + report_.overhead + helper;
    if (sum > total) {
      refuse("broker.pool", "broker.pool: pool " + to_text(report_.pool) + " + overhead " +
                                to_text(report_.overhead) + " + helper context " + to_text(helper) + " = " +
                                to_text(sum) + ", above the device's " + to_text(total) + " by " +
                                to_text(sum - total) + "; lower pool" + (overhead ? " or overhead" : ""));
      return false;
    }
    report_.left = total - sum;
    warn_of_tight_pool();
    return true;
  }

  void warn_of_tight_pool() {
    const DeviceFacts& device = report_.device;
    const Bytes wanted = automatic_overhead(device);
    if (report_.overhead_rule == "what remains" && report_.overhead < wanted) {
      warn("broker.pool", "broker.pool: " + report_.pool_rule + " leaves " + to_text(report_.overhead) +
                              " for the programs' contexts and libraries, less than the usual " +
                              to_text(wanted) + "; their start may fail");
    }
    if (report_.pool + device.in_use > device.total) {
      warn("broker.pool", "broker.pool: others use " + to_text(device.in_use) +
                              " of the device now, so the pool of " + to_text(report_.pool) +
                              " is not whole until they leave");
    }
  }

  void settle_job(const JobConfig& job) {
    const std::string path = "jobs." + job.name;
    const bool has_share = config_.lines.contains(path + ".share");
    const std::string guarantee_key = path + (has_share ? ".share" : ".guarantee");
    const std::string limit_key = path + (has_share ? ".share" : ".limit");
    const std::uint64_t pool = report_.pool_chunks;
    JobQuota quota;
    quota.name = job.name;
    const std::string guarantee_text =
        config_.written(guarantee_key, job.guarantee ? in_quotes(spell(*job.guarantee)) : "none");
    const std::string limit_text =
        config_.written(limit_key, job.limit ? in_quotes(spell(*job.limit)) : "none");
    quota.written = written_rule(path);
    quota.guarantee_chunks = job.guarantee ? whole_chunks(*job.guarantee, report_.pool, report_.chunk) : 0;
    quota.limit_chunks = job.limit ? whole_chunks(*job.limit, report_.pool, report_.chunk) : pool;
    if (quota.limit_chunks > pool) {  // C24
      warn(limit_key, limit_key + ": " + limit_text + " is above the pool of " + to_text(report_.pool) +
                          "; the pool is the limit");
      quota.limit_chunks = pool;
      quota.limit_clamped = true;
    }
    quota.guarantee = report_.chunk * quota.guarantee_chunks;
    quota.limit = report_.chunk * quota.limit_chunks;
    quota.told = told_total(job, quota.guarantee, quota.limit, false);
    quota.told_reclaimable = told_total(job, quota.guarantee, quota.limit, true);
    report_.promised += quota.guarantee;

    const std::string less_than_a_chunk =
        " of the pool of " + to_text(report_.pool) + " is less than one chunk of " + to_text(report_.chunk);
    if (job.guarantee && job.guarantee != Amount{0_B} && quota.guarantee_chunks == 0) {
      refuse(guarantee_key, guarantee_key + ": " + guarantee_text + less_than_a_chunk +
                                "; write more, or leave the guarantee out");
    } else if (quota.limit_chunks == 0) {
      refuse(limit_key, limit_key + ": " + limit_text + less_than_a_chunk + "; write more");
    } else if (quota.guarantee_chunks <= pool && quota.limit_chunks < quota.guarantee_chunks) {
      refuse(limit_key, limit_key + ": " + limit_text + " is " + to_text(quota.limit) +
                            " here, below the guarantee of " + to_text(quota.guarantee) +
                            "; raise the limit or lower the guarantee");
    } else if (quota.told == 0_B || quota.told_reclaimable == 0_B) {
      refuse_to_tell_nothing(job, path);
    }
    report_.jobs.push_back(std::move(quota));
  }

  // share = "0.5-0.8", or guarantee = "4GiB", limit = "25%"
  [[nodiscard]] std::string written_rule(const std::string& path) const {
    std::string rule;
    for (const char* key : {"share", "guarantee", "limit"}) {
      const std::string text = config_.written(path + "." + key, "");
      if (text.empty()) continue;
      rule += (rule.empty() ? "" : ", ") + std::string{key} + " = " + text;
    }
    return rule;
  }

  void refuse_to_tell_nothing(const JobConfig& job, const std::string& path) {
    if (job.report == ReportRule::guarantee && (!job.guarantee || *job.guarantee == Amount{0_B})) {
      refuse(path + ".report", path +
                                   R"(.report: "guarantee" tells programs 0, since there is no guarantee; )" +
                                   R"(write a guarantee, or "auto")");
    } else {
      refuse(path + ".library_room",
             path + ".library_room: " +
                 config_.written(path + ".library_room", in_quotes(spell(job.library_room))) +
                 " leaves nothing of what programs are told; lower it");
    }
  }

  // sum(G) <= P, with every term. The line is that of the job with which the sum passes the pool.
  void check_promises() {
    if (report_.promised <= report_.pool) return;
    Bytes sum{};
    std::string terms;
    std::string culprit;
    for (const JobQuota& job : report_.jobs) {
      if (job.guarantee == 0_B) continue;
      sum += job.guarantee;
      if (culprit.empty() && sum > report_.pool) culprit = job.name;
      terms += (terms.empty() ? "" : " + ") + job.name + " " + to_text(job.guarantee);
    }
    const std::string path = "jobs." + culprit;
    refuse(path + (config_.lines.contains(path + ".share") ? ".share" : ".guarantee"),
           "the guarantees " + terms + " = " + to_text(sum) + ", above the pool of " + to_text(report_.pool) +
               " by " + to_text(sum - report_.pool) + " (" +
               chunks_text((sum - report_.pool) / report_.chunk) + "); lower one of them");
  }

  const Config& config_;
  LoadReport report_;
};

}  // namespace

Status LoadReport::status() const {
  if (ok()) return Done{};
  return Error{Errc::invalid, refusals.front()};
}

const JobQuota* LoadReport::find_job(std::string_view name) const {
  for (const JobQuota& job : jobs) {
    if (job.name == name) return &job;
  }
  return nullptr;
}

Bytes automatic_overhead(const DeviceFacts& device) {
  if (device.display) return std::max(kLeastDisplayOverhead, device.in_use + kDisplayRoom);
  // In two steps, so that no total can wrap; rounded up.
  const std::uint64_t hundredths = device.total.value / 100 * kOverheadPercent;
  const std::uint64_t rest = (device.total.value % 100 * kOverheadPercent + 99) / 100;
  return std::max(kLeastOverhead, Bytes{hundredths + rest});
}

Bytes told_total(const JobConfig& job, Bytes guarantee, Bytes limit, bool reclaimable) {
  Bytes told = limit;
  if (job.report == ReportRule::guarantee) told = guarantee;
  if (job.report == ReportRule::automatic && !reclaimable && guarantee != 0_B) told = guarantee;
  return saturating_sub(told, job.library_room);
}

LoadReport load(const Config& config, const DeviceFacts& device) {
  return Loader{config, device}.run();
}

}  // namespace apportion
