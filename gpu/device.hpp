// One device, opened through the driver: who it is and what the driver says it can do.
//
// Owns: the loaded driver table (so a Device outlives the chunks and mappings made with it; moving it is
// fine). Promises: opening calls cuInit and reads attributes; it creates no context and takes no memory.
// Never: decides what works (probe does, by doing: attributes lie, rule 43).
// Thread-safety: const after open.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "gpu/driver_table.hpp"
#include "shm/bytes.hpp"
#include "shm/device_name.hpp"
#include "shm/result.hpp"

namespace apportion {

// What the driver says of a device. What changes while it runs is DeviceMonitor's.
struct DeviceDescription {
  std::string uuid;        // "GPU-..." or "MIG-...", lower case
  std::string name;        // "NVIDIA H200"
  std::string pci_bus_id;  // "0000:65:00.0"
  std::string driver_file;
  int driver_version = 0;       // 13000 is CUDA 13.0
  Bytes total;                  // cuDeviceTotalMem
  Bytes granularity;            // of chunks: sizes are multiples of it (rule 2: queried, never assumed)
  bool simulated = false;       // the driver is this project's simulator
  bool integrated = false;      // its memory is the host's
  bool vmm = false;             // attributes: virtual memory management,
  bool posix_fd = false;        //   chunks exported as file descriptors,
  bool fabric = false;          //   ... as fabric handles,
  bool rdma = false;            //   chunks registered for RDMA,
  bool kernel_timeout = false;  //   kernels are timed out: a display runs on it
};

class Device {
 public:
  // Opens what `name` says; a simulated device prepares the simulator first (simulator.hpp).
  // `driver_path`: as for DriverTable::load. Errors: not_found (no such device; the message lists those there
  // are), out_of_memory (no room for a simulated device), driver.
  static Result<Device> open(const DeviceName& name, std::string_view driver_path = {});
  // The same for a name as a user spells it (shm/device_name.hpp). Errors: invalid (spelling) too.
  static Result<Device> open(std::string_view text, std::string_view driver_path = {});

  [[nodiscard]] const DriverTable& driver() const { return *driver_; }
  [[nodiscard]] CUdevice ordinal() const { return ordinal_; }
  [[nodiscard]] const DeviceDescription& facts() const { return facts_; }

 private:
  Device() = default;

  std::unique_ptr<const DriverTable> driver_;
  CUdevice ordinal_ = 0;
  DeviceDescription facts_;
};

// One line a device: "0: NVIDIA H200, 139.81 GiB, GPU-..., 0000:65:00.0". `driver` has been initialised.
[[nodiscard]] std::string list_devices(const DriverTable& driver);

}  // namespace apportion
