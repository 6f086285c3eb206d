#include "cli/check.hpp"

#include <sys/resource.h>

#include "cli/status_figures.hpp"
#include "cli/status_query.hpp"
#include "config/find.hpp"
#include "config/load.hpp"
#include "config/open_files.hpp"
#include "gpu/device_monitor.hpp"
#include "gpu/simulator.hpp"

namespace apportion {
namespace {

// A broker that serves the device already holds its pool, and its clients their contexts: nobody else's
// memory. Empty where there is none, or it does not answer: then all that is in use counts as others'.
std::string leave_out_running_broker(const Device& device, DeviceFacts& facts) {
  const std::string& uuid = device.facts().uuid;
  const Result<StatusAnswer> running = ask_status(uuid);
  if (!running.ok() || running->broker.device_uuid.view() != uuid) return {};
  const Bytes its{reserved_of(*running) + contexts_of(*running)};
  facts.in_use = saturating_sub(facts.in_use, its);
  return "\nA broker (pid " + std::to_string(running->broker.pid) + ") serves this device now; the " +
         to_text(its) + " that it and its clients hold are not counted as in use.\n";
}

}  // namespace

Result<CheckAnswer> check_config(const CheckOptions& options) {
  ConfigSearch search = config_search(options.file.empty() ? std::nullopt : std::optional(options.file));
  search.flag_usage = "apportion check FILE";
  Result<std::string> path = find_config(search);
  if (!path.ok()) return path.error();
  Result<Config> config = read_config(*path, system_names());
  if (!config.ok()) return config.error();
  if (!options.device.empty()) {
    Result<DeviceName> other = parse_device(options.device);
    if (!other.ok()) return other.error();
    config->broker.device = *other;
  }
  const std::string where = options.device.empty() ? config->where("broker.device") : "--device";
  leave_no_simulator();
  Result<Device> device = Device::open(config->broker.device);
  if (!device.ok()) return Error{device.error().code, where + ": " + device.error().message};
  Result<DeviceMonitor> monitor = DeviceMonitor::open(*device);
  if (!monitor.ok()) return monitor.error();
  Result<DeviceFacts> facts = facts_for_load(*device, *monitor);
  if (!facts.ok()) return facts.error();
  const std::string running = leave_out_running_broker(*device, *facts);
  LoadReport report = load(*config, *facts);
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  // A warning: this shell's limit need not be the broker's.
  if (Status fits = check_open_files(*config, report, limit.rlim_max); !fits.ok())
    report.warnings.push_back(fits.error().message);
  return CheckAnswer{to_text(report) + running, report.refusals};
}

}  // namespace apportion
