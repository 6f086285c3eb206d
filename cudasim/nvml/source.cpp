#include "cudasim/nvml/source.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "cudasim/store/census.hpp"
#include "cudasim/store/folder.hpp"

namespace cudasim::nvml {
namespace {

// A device tells its figures a little late: two questions within this time get one answer.
constexpr u64 kSampleAgeNs = 2'000'000;
constexpr u64 kRounding = kGranularity;

std::atomic<const Folder*> source{
    nullptr};  // a folder is never freed, so a reader may keep the pointer over close

struct Sample {
  u64 taken_ns = 0;
  Use use;
};
std::mutex samples_mutex;
std::array<Sample, kMaxDevices> samples;

u64 rounded(u64 bytes) {
  return (bytes + kRounding - 1) / kRounding * kRounding;
}

Use take(u32 device) {
  const DeviceRecord& record = source_folder()->page().devices[device];
  Use use;
  use.lost = record.lost.load() != 0;
  use.used_bytes =
      std::min(rounded(used_bytes(*source_folder(), device, Census::kQuick)), record.total_bytes);
  for (u32 index = 0; index < kMaxProcesses; ++index) {
    const ProcessRecord& process = source_folder()->page().processes[index];
    if (process.state.load() == static_cast<u32>(ProcessState::kFree)) continue;
    const u64 bytes = process_bytes(*source_folder(), device, index);
    if (bytes != 0) use.processes.push_back({static_cast<unsigned>(process.pid), rounded(bytes)});
  }
  return use;
}

}  // namespace

bool open_source() {
  // Programs that poll initialise and shut down each time, and a folder is never unmapped.
  if (const Folder* known = source_folder();
      known != nullptr && known->path() == default_folder() && known->is_in_place())
    return true;
  std::string error;
  const auto options = FolderOptions::from_environment(error);
  const Folder* folder = options ? Folder::open(default_folder(), *options, error).release() : nullptr;
  if (folder == nullptr) {
    std::fprintf(stderr, "cudasim: NVML: %s\n", error.c_str());
    return false;
  }
  source = folder;
  return true;
}

void close_source() {
  const std::lock_guard lock(samples_mutex);
  samples = {};
}

const Folder* source_folder() {
  return source.load();
}

std::size_t device_count() {
  return source_folder()->page().device_count;
}

Facts facts(std::size_t index) {
  const DeviceRecord& record = source_folder()->page().devices[index];
  const u8* u = record.uuid;
  char uuid[48];
  std::snprintf(uuid, sizeof uuid, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
                u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14],
                u[15]);
  Facts facts;
  facts.name = record.name;
  facts.uuid = uuid;
  facts.pci_bus = record.pci_bus;
  facts.total_bytes = record.total_bytes;
  facts.persistence = record.persistence.load() != 0;
  return facts;
}

Use use(std::size_t index) {
  const std::lock_guard lock(samples_mutex);
  Sample& sample = samples[index];
  const u64 now = monotonic_ns();
  if (sample.taken_ns == 0 || now - sample.taken_ns > kSampleAgeNs)
    sample = {now, take(static_cast<u32>(index))};
  return sample.use;
}

}  // namespace cudasim::nvml
