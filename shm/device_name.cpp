#include "shm/device_name.hpp"

#include <array>
#include <charconv>

#include "shm/quote.hpp"

namespace apportion {
namespace {

constexpr const char* kHelp =
    R"(write an index such as "0", a UUID "GPU-..." or "MIG-..." in full, a PCI id such as "0000:65:00.0", or "sim:8GiB")";
constexpr std::string_view kSimulatedPrefix = "sim:";
constexpr std::string_view kUuidShape = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
constexpr std::string_view kPciShape = "xxxxxxxx:xx:xx.x";
constexpr std::string_view kNoHighDomain =
    "0000";  // upper half of the domain on all but the largest machines
constexpr unsigned kMaxIndex = 1023;

struct Unit {
  std::string_view name;
  Bytes bytes;
};
// The first of each size is the one printed. The other units of config/sizes cannot give a whole unit of a
// device, or only by accident.
constexpr std::array<Unit, 9> kUnits{{{"TiB", 1024_GiB},
                                      {"Ti", 1024_GiB},
                                      {"T", 1024_GiB},
                                      {"GiB", 1_GiB},
                                      {"Gi", 1_GiB},
                                      {"G", 1_GiB},
                                      {"MiB", 1_MiB},
                                      {"Mi", 1_MiB},
                                      {"M", 1_MiB}}};

Error refuse(std::string_view text, const std::string& what) {
  return {Errc::invalid, in_quotes(text) + " " + what + "; " + kHelp};
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

// A decimal number that fills `text` up to `rest`; false where there is none or it does not fit.
template <typename Number>
bool take_number(std::string_view text, Number& number, std::string_view& rest) {
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failed != std::errc{}) return false;
  rest = text.substr(static_cast<std::size_t>(end - text.data()));
  return true;
}

Result<DeviceName> parse_simulated(std::string_view text) {
  std::uint64_t count = 0;
  std::string_view unit_name;
  if (!take_number(text.substr(kSimulatedPrefix.size()), count, unit_name))
    return refuse(text, "has no whole size after \"sim:\"");
  for (const Unit& unit : kUnits) {
    if (unit.name != unit_name) continue;
    if (count > kLargestSimulated / unit.bytes)
      return refuse(text, "is more than a simulated device can have, " + to_text(kLargestSimulated));
    const Bytes size = unit.bytes * count;
    if (size < kSmallestSimulated)
      return refuse(text, "is less than a simulated device must have, " + to_text(kSmallestSimulated));
    if (size != round_down(size, kSimulatedUnit))
      return refuse(text, "is not a whole number of " + to_text(kSimulatedUnit));
    return DeviceName{DeviceName::Kind::simulated, 0, {}, size};
  }
  return refuse(text, "has a size without one of the units MiB, GiB and TiB");
}

}  // namespace

Result<DeviceName> parse_device(std::string_view text) {
  using Kind = DeviceName::Kind;
  if (text.empty()) return refuse(text, "is empty");
  if (text.starts_with(kSimulatedPrefix)) return parse_simulated(text);
  for (const auto& [prefix, kind] : {std::pair{std::string_view{"GPU-"}, Kind::uuid}, {"MIG-", Kind::mig}}) {
    if (!text.starts_with(prefix)) continue;
    const std::string rest = lower(text.substr(prefix.size()));
    if (!has_shape(rest, kUuidShape)) return refuse(text, "is not a whole UUID");
    return DeviceName{kind, 0, std::string{prefix} + rest, {}};
  }
  if (text.find_first_not_of("0123456789") == std::string_view::npos) {
    unsigned index = 0;
    std::string_view rest;
    if (!take_number(text, index, rest) || index > kMaxIndex)
      return refuse(text, "is an index that no machine has");
    return DeviceName{Kind::index, index, {}, {}};
  }
  const std::string pci = lower(text);
  for (const std::string_view missing : {"", "0000", "00000000:"}) {
    std::string whole = std::string{missing} + pci;
    if (!has_shape(whole, kPciShape)) continue;
    if (whole.starts_with(kNoHighDomain)) whole.erase(0, kNoHighDomain.size());
    return DeviceName{Kind::pci, 0, whole, {}};
  }
  return refuse(text, "names no device");
}

std::string spell(const DeviceName& device) {
  switch (device.kind) {
    case DeviceName::Kind::index:
      return std::to_string(device.index);
    case DeviceName::Kind::simulated:
      for (const Unit& unit : kUnits) {
        const Bytes size = device.simulated_size;
        if (size >= unit.bytes && size == round_down(size, unit.bytes))
          return std::string{kSimulatedPrefix} + std::to_string(size / unit.bytes) + std::string{unit.name};
      }
      break;
    case DeviceName::Kind::uuid:
    case DeviceName::Kind::pci:
    case DeviceName::Kind::mig:
      return device.id;
  }
  broken_invariant("a simulated device of whole MiB", __FILE__, __LINE__);
}

}  // namespace apportion
