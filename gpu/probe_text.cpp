// gpu/probe_text.hpp.
#include "gpu/probe_text.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace apportion {
namespace {

std::string pad(std::string text, std::size_t width) {
  text.resize(std::max(text.size(), width), ' ');
  return text;
}

const char* yes_no(std::optional<bool> value) {
  return !value ? "-" : *value ? "yes" : "no";
}

nlohmann::json to_json(std::optional<bool> value) {
  return value ? nlohmann::json(*value) : nlohmann::json();
}

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

}  // namespace

std::string to_table(const ProbeReport& report) {
  const DeviceDescription& facts = report.facts;
  std::string text = facts.name + (facts.simulated ? " (simulated driver)" : "") + ", " +
                     to_text(facts.total) + ", " + facts.uuid + ", " + facts.pci_bus_id + "\n" + "driver " +
                     facts.driver_file + ", CUDA " + version_text(facts.driver_version) +
                     "; chunks in multiples of " + to_text(facts.granularity) +
                     "; integrated: " + yes_no(facts.integrated) + "; display: " + yes_no(report.display) +
                     "; persistence mode: " + yes_no(report.persistence) + "\n\n";
  std::size_t width = 0;
  for (const Capability& c : report.capabilities)
    width = std::max(width, c.name.size());
  text += pad("capability", width) + "  claimed  works  needed  detail\n";
  for (const Capability& c : report.capabilities) {
    std::string line = pad(c.name, width) + "  " + pad(yes_no(c.claimed), 7) + "  " +
                       pad(yes_no(c.works), 5) + "  " + pad(c.needed ? "yes" : "no", 6) + "  " + c.detail;
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  text += report.usable() ? "\nA broker can serve this device.\n"
                          : "\nA broker cannot serve this device: " + report.why_not() + "\n";
  return text;
}

std::string to_json(const ProbeReport& report) {
  const DeviceDescription& facts = report.facts;
  nlohmann::json json;
  json["device"] = {{"uuid", facts.uuid},
                    {"name", facts.name},
                    {"pci_bus_id", facts.pci_bus_id},
                    {"total_bytes", facts.total.value},
                    {"free_bytes", report.free ? nlohmann::json(report.free->value) : nlohmann::json()},
                    {"granularity_bytes", facts.granularity.value},
                    {"simulated", facts.simulated},
                    {"integrated", facts.integrated},
                    {"display", to_json(report.display)},
                    {"persistence", to_json(report.persistence)},
                    {"driver", facts.driver_file},
                    {"driver_version", facts.driver_version}};
  json["usable"] = report.usable();
  json["capabilities"] = nlohmann::json::array();
  for (const Capability& c : report.capabilities)
    json["capabilities"].push_back({{"name", c.name},
                                    {"used_for", c.used_for},
                                    {"needed", c.needed},
                                    {"claimed", to_json(c.claimed)},
                                    {"works", to_json(c.works)},
                                    {"detail", c.detail}});
  return json.dump();
}

}  // namespace apportion
