#include "config/device_spec.hpp"

#include <array>
#include <charconv>
#include <cstdio>

#include "config/quote.hpp"
#include "config/sizes.hpp"

namespace apportion {
namespace {

constexpr const char* kHelp =
    R"(write an index such as "0", a UUID "GPU-..." or "MIG-..." in full, a PCI id such as "0000:65:00.0", or "sim:8GiB")";
constexpr Bytes kSimulatedUnit = 2_MiB;
constexpr unsigned kMaxIndex = 1023;

Error refuse(std::string_view text, const std::string& what) {
  return {Errc::invalid, quoted(text) + " " + what + "; " + kHelp};
}

bool is_hex(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
}

std::string lower(std::string_view text) {
  std::string out{text};
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c | 0x20);
  }
  return out;
}

// True where `text` has the shape of `pattern`: x stands for one hex digit, any other character for itself.
bool has_shape(std::string_view text, std::string_view pattern) {
  if (text.size() != pattern.size()) return false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (pattern[i] == 'x' ? !is_hex(text[i]) : text[i] != pattern[i]) return false;
  }
  return true;
}

Result<DeviceSpec> parse_simulated(std::string_view text) {
  Result<Bytes> size = parse_bytes(text.substr(4));
  if (!size) return refuse(text, "has no size after \"sim:\"");
  if (size->value == 0 || size->value % kSimulatedUnit.value != 0) {
    return refuse(text, "is not a whole number of 2 MiB");
  }
  return DeviceSpec{DeviceSpec::Kind::simulated, 0, {}, *size};
}

}  // namespace

Result<DeviceSpec> parse_device(std::string_view text) {
  using Kind = DeviceSpec::Kind;
  constexpr std::string_view kUuid = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
  if (text.empty()) return refuse(text, "is empty");
  if (text.starts_with("sim:")) return parse_simulated(text);
  for (const auto& [prefix, kind] : {std::pair{std::string_view{"GPU-"}, Kind::uuid}, {"MIG-", Kind::mig}}) {
    if (!text.starts_with(prefix)) continue;
    const std::string rest = lower(text.substr(prefix.size()));
    if (!has_shape(rest, kUuid)) return refuse(text, "is not a whole UUID");
    return DeviceSpec{kind, 0, std::string{prefix} + rest, {}};
  }
  if (text.find_first_not_of("0123456789") == std::string_view::npos) {
    unsigned index = 0;
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), index);
    if (failed != std::errc{} || index > kMaxIndex) return refuse(text, "is an index that no machine has");
    return DeviceSpec{Kind::index, index, {}, {}};
  }
  const std::string pci = lower(text);
  for (const std::string_view missing : {"", "0000", "00000000:"}) {
    const std::string whole = std::string{missing} + pci;
    if (has_shape(whole, "xxxxxxxx:xx:xx.x")) return DeviceSpec{Kind::pci, 0, whole, {}};
  }
  return refuse(text, "names no device");
}

std::string spell(const DeviceSpec& device) {
  switch (device.kind) {
    case DeviceSpec::Kind::index:
      return std::to_string(device.index);
    case DeviceSpec::Kind::simulated:
      return "sim:" + spell(device.simulated_size);
    case DeviceSpec::Kind::uuid:
    case DeviceSpec::Kind::pci:
    case DeviceSpec::Kind::mig:
      break;
  }
  return device.id;
}

}  // namespace apportion
