// What NVML says about the simulated devices: read from the device folder, never from a driver in this
// process.
//
// Promises: figures as a device gives them: rounded up to 2 MiB a process, a little late (a sample is kept
// for kSampleAge), billed to the process that created the memory while it lives, and to nobody after that.
// Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace cudasim {
class Folder;
}

namespace cudasim::nvml {

struct Facts {
  std::string name;
  std::string uuid;  // "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"
  unsigned pci_domain = 0, pci_bus = 0, pci_device = 0;
  std::uint64_t total_bytes = 0;
  bool persistence = true;
};

struct ProcessUse {
  unsigned pid;
  std::uint64_t bytes;  // contexts and memory it created
};

struct Use {
  std::uint64_t used_bytes = 0;
  std::vector<ProcessUse> processes;
  bool lost = false;
};

// Opens the device folder; false where it cannot be opened. Called under the caller's lock, again after
// close.
[[nodiscard]] bool open_source();
void close_source();
// Null before the first open; kept over close.
[[nodiscard]] const Folder* source_folder();

// Valid between open and close.
[[nodiscard]] std::size_t device_count();
[[nodiscard]] Facts facts(std::size_t index);
[[nodiscard]] Use use(std::size_t index);

}  // namespace cudasim::nvml
