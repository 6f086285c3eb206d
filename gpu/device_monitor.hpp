// What changes on a device while it runs, as NVML tells it: free and used memory, and who holds it.
//
// Promises: needs no CUDA context (rule 28), so the broker can ask without paying for one. Figures are the
// driver's: memory belongs to its creator, memory held by an fd alone to nobody (rule 41), and they can be
// late. Never: decides anything; the book is the truth. Thread-safety: const after open; NVML locks inside.
#pragma once

#include <sys/types.h>

#include <optional>
#include <vector>

#include "gpu/device.hpp"
#include "gpu/nvml_table.hpp"
#include "shm/device_facts.hpp"

namespace apportion {

struct DeviceMemory {
  Bytes total;
  Bytes free;
  Bytes used;      // by processes and by the driver itself, reserved included
  Bytes reserved;  // by the driver itself; 0 where NVML does not say
};

struct DeviceProcess {
  pid_t pid = 0;
  std::optional<Bytes> used;  // none: the driver does not know (WSL2, some containers)
};

class DeviceMonitor {
 public:
  // Loads NVML for `device` and finds it there by its UUID. Errors: not_found, driver.
  static Result<DeviceMonitor> open(const Device& device);

  [[nodiscard]] Result<DeviceMemory> memory() const;
  // Every process that holds memory of the device, ascending by pid; compute and graphics together.
  [[nodiscard]] Result<std::vector<DeviceProcess>> processes() const;
  // Whether a display is active on it, and whether persistence mode is on (rule 24); none: NVML does not say.
  [[nodiscard]] std::optional<bool> display() const;
  [[nodiscard]] std::optional<bool> persistence() const;
  [[nodiscard]] const NvmlTable& nvml() const { return nvml_; }

 private:
  NvmlTable nvml_;
  NvmlDevice device_ = nullptr;
};

// What the load rule needs to know of the device (config/load.hpp). Errors: those of memory().
[[nodiscard]] Result<DeviceFacts> facts_for_load(const Device& device, const DeviceMonitor& monitor);

}  // namespace apportion
