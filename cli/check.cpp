#include "cli/check.hpp"

#include "config/find.hpp"
#include "config/load.hpp"
#include "gpu/device_monitor.hpp"

namespace apportion {

Result<CheckAnswer> check_config(const CheckOptions& options) {
  Result<std::string> path =
      find_config(config_search(options.file.empty() ? std::nullopt : std::optional(options.file)));
  if (!path.ok()) return path.error();
  Result<Config> config = read_config(*path, system_names());
  if (!config.ok()) return config.error();
  if (!options.device.empty()) {
    Result<DeviceSpec> other = parse_device(options.device);
    if (!other.ok()) return other.error();
    config->broker.device = *other;
  }
  const std::string where = options.device.empty() ? config->where("broker.device") : "--device";
  Result<Device> device = Device::open(spell(config->broker.device));
  if (!device.ok()) return Error{device.error().code, where + ": " + device.error().message};
  Result<DeviceMonitor> monitor = DeviceMonitor::open(*device);
  if (!monitor.ok()) return monitor.error();
  Result<DeviceFacts> facts = facts_for_load(*device, *monitor);
  if (!facts.ok()) return facts.error();
  const LoadReport report = load(*config, *facts);
  CheckAnswer answer{to_text(report), {}};
  if (Status good = report.status(); !good.ok()) answer.refusal = good.error().message;
  return answer;
}

}  // namespace apportion
