// Any bytes as apportion.toml: parse, load, print. Whatever parses must read back from its printed form and
// load without breaking the load rule.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "config/config.hpp"
#include "config/load.hpp"

using namespace apportion;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const Names names{[](const std::string&) { return std::optional<std::uint32_t>{7}; },
                    [](const std::string&) { return std::optional<std::uint32_t>{8}; }};
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  const Result<Config> config = parse_config(text, "fuzz.toml", names);
  if (!config) {
    APPORTION_CHECK(!config.error().message.empty());
    for (const char c : config.error().message)
      APPORTION_CHECK(c >= 0x20 && c < 0x7f);
    return 0;
  }
  const Result<Config> again = parse_config(to_toml(*config), "printed.toml", names);
  APPORTION_CHECK(again.ok());
  APPORTION_CHECK(again->broker == config->broker && again->jobs == config->jobs &&
                  again->adhoc == config->adhoc);
  for (const Bytes total : {8_GiB, 80_GiB}) {
    DeviceFacts device;
    device.total = total;
    device.granularity = 2_MiB;
    const LoadReport report = load(*config, device);
    APPORTION_CHECK(!to_text(report).empty());
    if (!report.ok()) continue;
    APPORTION_CHECK(report.promised <= report.pool);
    APPORTION_CHECK(report.pool + report.overhead + report.device.helper_context + report.left == total);
    for (const JobQuota& job : report.jobs)
      APPORTION_CHECK(job.guarantee <= job.limit && job.limit <= report.pool);
  }
  return 0;
}
