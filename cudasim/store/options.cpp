// Reads what a device folder is made with from the environment.
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "cudasim/store/folder.hpp"

namespace cudasim {
namespace {

constexpr u64 kSmallestDevice = 16 * kGranularity;  // room for a context and a few chunks
constexpr u64 kLongestDeathMs = 600'000;
constexpr u64 kLargestSize = 1ull << 50;
constexpr std::size_t kMostDigits = 19;  // below 10^19: fits 64 bits

bool read_flag(const char* name, bool& value, std::string& error) {
  const char* text = std::getenv(name);
  if (!text) return true;
  if (!std::strcmp(text, "0") || !std::strcmp(text, "1")) {
    value = *text == '1';
    return true;
  }
  error = std::string("cudasim: ") + name + "=" + text + ": expected 0 or 1";
  return false;
}

bool read_number(const std::string& text, u64& value) {
  if (text.empty() || text.find_first_not_of("0123456789") != std::string::npos || text.size() > kMostDigits)
    return false;
  value = std::strtoull(text.c_str(), nullptr, 10);
  return true;
}

bool read_devices(FolderOptions& options, std::string& error) {
  const char* text = std::getenv("CUDASIM_DEVICES");
  if (!text) return true;
  options.device_bytes.clear();
  std::string rest = text;
  for (size_t start = 0; start <= rest.size();) {
    size_t end = std::min(rest.find(',', start), rest.size());
    auto bytes = parse_size(rest.substr(start, end - start));
    if (!bytes || *bytes < kSmallestDevice || options.device_bytes.size() == kMaxDevices) {
      error = std::string("cudasim: CUDASIM_DEVICES=") + text +
              ": expected up to 8 sizes of at least 32MiB, like 80GiB or 8GiB,8GiB";
      return false;
    }
    options.device_bytes.push_back(*bytes / kGranularity * kGranularity);
    start = end + 1;
  }
  return true;
}

bool read_death(FolderOptions& options, std::string& error) {
  const char* text = std::getenv("CUDASIM_DEATH_MS");
  if (!text) return true;
  std::string range = text;
  size_t dash = range.find('-');
  u64 low = 0, high = 0;
  bool good = read_number(range.substr(0, dash), low) &&
              (dash == std::string::npos || read_number(range.substr(dash + 1), high));
  if (dash == std::string::npos) high = low;
  if (!good || high < low || high > kLongestDeathMs) {
    error = std::string("cudasim: CUDASIM_DEATH_MS=") + text + ": expected milliseconds like 0-500";
    return false;
  }
  options.death_min_ms = static_cast<u32>(low);
  options.death_max_ms = static_cast<u32>(high);
  return true;
}

}  // namespace

std::optional<u64> parse_size(const std::string& text) {
  size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  u64 value = 0;
  if (!read_number(text.substr(0, digits), value)) return std::nullopt;
  const std::string unit = text.substr(digits);
  u64 factor = 0;
  if (unit.empty() || unit == "B") factor = 1;
  if (unit == "KiB" || unit == "K") factor = 1ull << 10;
  if (unit == "MiB" || unit == "M") factor = 1ull << 20;
  if (unit == "GiB" || unit == "G") factor = 1ull << 30;
  if (unit == "TiB" || unit == "T") factor = 1ull << 40;
  if (!factor || value > kLargestSize / factor) return std::nullopt;
  return value * factor;
}

std::string default_folder() {
  if (const char* folder = std::getenv("CUDASIM_DIR"); folder && *folder) return folder;
  return "/dev/shm/cudasim-" + std::to_string(::getuid());
}

std::optional<FolderOptions> FolderOptions::from_environment(std::string& error) {
  FolderOptions options;
  if (!read_devices(options, error) || !read_death(options, error)) return std::nullopt;
  if (!read_flag("CUDASIM_STRICT", options.strict, error) ||
      !read_flag("CUDASIM_DIRTY", options.dirty, error) ||
      !read_flag("CUDASIM_RECORD", options.record, error) ||
      !read_flag("CUDASIM_PERSISTENCE", options.persistence, error) ||
      !read_flag("CUDASIM_TEMPORARY", options.temporary, error))
    return std::nullopt;
  if (const char* text = std::getenv("CUDASIM_CONTEXT")) {
    options.context_bytes = parse_size(text);
    if (!options.context_bytes) {
      error = std::string("cudasim: CUDASIM_CONTEXT=") + text + ": expected a size like 512MiB";
      return std::nullopt;
    }
  }
  u64 number = 0;
  for (auto [name, target] :
       {std::pair{"CUDASIM_SEED", &options.seed}, std::pair{"CUDASIM_BREAK", &number}}) {
    const char* text = std::getenv(name);
    if (text && !read_number(text, *target)) {
      error = std::string("cudasim: ") + name + "=" + text + ": expected a number";
      return std::nullopt;
    }
  }
  options.break_rule = static_cast<u32>(number);
  if (const char* text = std::getenv("CUDASIM_LATENCY"); text && *text) {
    options.a100_latency = !std::strcmp(text, "A100");
    if (!options.a100_latency && std::strcmp(text, "none")) {
      error = std::string("cudasim: CUDASIM_LATENCY=") + text + ": expected A100 or none";
      return std::nullopt;
    }
  }
  return options;
}

}  // namespace cudasim
