// How `device` names a GPU: an index, a UUID, a PCI id, a MIG UUID, or "sim:8GiB" for the simulated device.
// Never asks a driver: whether the device exists is for gpu/ and the broker to find out.
#pragma once

#include <string>
#include <string_view>

#include "shm/bytes.hpp"
#include "shm/result.hpp"

namespace apportion {

struct DeviceSpec {
  enum class Kind { index, uuid, pci, mig, simulated };

  Kind kind = Kind::index;
  unsigned index = 0;  // Kind::index: in the driver's order (PCI bus order is the caller's to set)
  std::string id;      // uuid "GPU-...", mig "MIG-...", pci "00000000:65:00.0" (lower case, 8-digit domain)
  Bytes simulated_size{};  // Kind::simulated: device total, a whole number of 2 MiB

  friend bool operator==(const DeviceSpec&, const DeviceSpec&) = default;
};

// Errc::invalid with one line that quotes `text`. UUIDs are written in full and come back in lower case after
// their prefix. A PCI id may leave out its domain.
[[nodiscard]] Result<DeviceSpec> parse_device(std::string_view text);
[[nodiscard]] std::string spell(const DeviceSpec& device);

}  // namespace apportion
