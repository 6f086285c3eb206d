#include "cudasim/nvml/state.hpp"

#include <array>
#include <cstring>
#include <mutex>

#include "cudasim/nvml/call.hpp"
#include "cudasim/nvml/source.hpp"

namespace cudasim::nvml {

struct Device {};

namespace {

constexpr std::size_t kMostDevices = 8;  // kMaxDevices of the folder
std::array<Device, kMostDevices> devices;
std::mutex mutex;
unsigned starts = 0;

}  // namespace

Return start() {
  const std::lock_guard lock(mutex);
  if (starts == 0 && !open_source()) return kDriverNotLoaded;
  if (const Return result = enter("nvmlInit"); result != kSuccess) return result;
  ++starts;
  return kSuccess;
}

Return stop() {
  const std::lock_guard lock(mutex);
  if (starts == 0) return kUninitialized;
  if (--starts == 0) close_source();
  return kSuccess;
}

bool started() {
  const std::lock_guard lock(mutex);
  return starts != 0;
}

Device* handle_of(std::size_t index) {
  return index < kMostDevices ? &devices[index] : nullptr;
}

Found device_of(const Device* device) {
  if (!started()) return {kUninitialized, 0};
  for (std::size_t i = 0; i < device_count() && i < kMostDevices; ++i) {
    if (device == &devices[i]) return {kSuccess, i};
  }
  return {kInvalidArgument, 0};
}

Return copy_text(const char* text, char* out, unsigned length) {
  if (out == nullptr) return kInvalidArgument;
  const std::size_t needed = std::strlen(text) + 1;
  if (needed > length) return kInsufficientSize;
  std::memcpy(out, text, needed);
  return kSuccess;
}

}  // namespace cudasim::nvml
