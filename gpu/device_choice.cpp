// Spellings of a device: gpu/device_choice.hpp.
#include "gpu/device_choice.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>

namespace apportion {
namespace {

constexpr std::string_view kSimulatedPrefix = "sim:";
constexpr Bytes kSmallestSimulated = 64_MiB;
constexpr Bytes kLargestSimulated = 1024_GiB * 16;
constexpr Bytes kSimulatedUnit = 2_MiB;  // the granularity of devices

Error refuse(std::string_view text, std::string_view why) {
  return {Errc::invalid, "device '" + std::string(text) + "': " + std::string(why)};
}

bool is_hex(char c) {
  return std::isxdigit(static_cast<unsigned char>(c)) != 0;
}
char lower(char c) {
  return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
}

// Whether `text` is `shape` with every 'x' a hexadecimal digit.
bool has_shape(std::string_view text, std::string_view shape) {
  return std::equal(text.begin(), text.end(), shape.begin(), shape.end(),
                    [](char c, char s) { return s == 'x' ? is_hex(c) : c == s; });
}

// A whole number and a binary unit, "80GiB". The full grammar of sizes is the configuration's, not a
// device's.
Result<Bytes> simulated_total(std::string_view text, std::string_view size) {
  constexpr std::string_view kHelp = "after 'sim:' a size in MiB, GiB or TiB is expected, as in sim:80GiB";
  std::uint64_t count = 0;
  const auto [end, errc] = std::from_chars(size.data(), size.data() + size.size(), count);
  if (errc != std::errc{} || count == 0) return refuse(text, kHelp);
  const std::string_view unit(end, static_cast<std::size_t>(size.data() + size.size() - end));
  Bytes one;
  if (unit == "MiB" || unit == "Mi" || unit == "M")
    one = 1_MiB;
  else if (unit == "GiB" || unit == "Gi" || unit == "G")
    one = 1_GiB;
  else if (unit == "TiB" || unit == "Ti" || unit == "T")
    one = 1024_GiB;
  else
    return refuse(text, kHelp);
  if (count > kLargestSimulated / one) return refuse(text, "a simulated device has at most 16 TiB");
  const Bytes total = one * count;
  if (total < kSmallestSimulated) return refuse(text, "a simulated device has at least 64 MiB");
  if (total != round_down(total, kSimulatedUnit)) return refuse(text, "the size must be a multiple of 2 MiB");
  return total;
}

}  // namespace

Result<DeviceChoice> parse_device_choice(std::string_view text) {
  constexpr std::string_view kUuid = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
  DeviceChoice choice;
  if (text.starts_with(kSimulatedPrefix)) {
    auto total = simulated_total(text, text.substr(kSimulatedPrefix.size()));
    if (!total) return total.error();
    choice.kind = DeviceChoice::Kind::simulated;
    choice.total = *total;
    return choice;
  }
  if (text.starts_with("GPU-") || text.starts_with("MIG-")) {
    if (!has_shape(text.substr(4), kUuid))
      return refuse(text, "a whole UUID is expected, as `nvidia-smi -L` prints it");
    choice.kind = DeviceChoice::Kind::uuid;
    choice.name = text;
    std::transform(choice.name.begin() + 4, choice.name.end(), choice.name.begin() + 4, lower);
    return choice;
  }
  if (has_shape(text, "xxxx:xx:xx.x") || has_shape(text, "xxxxxxxx:xx:xx.x") || has_shape(text, "xx:xx.x")) {
    choice.kind = DeviceChoice::Kind::pci;
    choice.name = text.size() == 7 ? "0000:" + std::string(text) : std::string(text);
    std::transform(choice.name.begin(), choice.name.end(), choice.name.begin(), lower);
    return choice;
  }
  const auto [end, errc] = std::from_chars(text.data(), text.data() + text.size(), choice.index);
  if (errc != std::errc{} || end != text.data() + text.size())
    return refuse(text,
                  "expected an index (0), a UUID (GPU-... or MIG-...), a PCI id (0000:65:00.0), or sim:SIZE");
  return choice;
}

}  // namespace apportion
