// How a user names a device: an index, a UUID, a PCI id, a MIG UUID, or "sim:8GiB" for the simulated one. One
// grammar for the key `device`, for --device, and for whoever opens one.
//
// Promises: every spelling is read exactly or refused with its text; nothing is guessed. Never: asks a
// driver; whether there is such a device is for gpu/ to find out. Pure; thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "shm/bytes.hpp"
#include "shm/result.hpp"

namespace apportion {

struct DeviceName {
  enum class Kind { index, uuid, pci, mig, simulated };

  Kind kind = Kind::index;
  unsigned index = 0;      // Kind::index: in the driver's order, after CUDA_VISIBLE_DEVICES
  std::string id;          // uuid "GPU-...", mig "MIG-...", pci "0000:65:00.0"; digits in lower case, whole
  Bytes simulated_size{};  // Kind::simulated: device total

  friend bool operator==(const DeviceName&, const DeviceName&) = default;
};

// What a simulated device can be: a whole number of kSimulatedUnit between these.
inline constexpr Bytes kSmallestSimulated = 64_MiB;
inline constexpr Bytes kLargestSimulated = 16384_GiB;
inline constexpr Bytes kSimulatedUnit = 2_MiB;

// Errc::invalid with one line that quotes `text`. A UUID is written in full, in any case of letters after its
// prefix. A PCI id may leave out its domain, and comes back as lspci and the driver print it: a domain of
// four digits, of eight where four do not hold it. After "sim:" stands a whole number with a binary unit from
// MiB up (M, Mi, MiB, G ...), which means what it means as a size in the config.
[[nodiscard]] Result<DeviceName> parse_device(std::string_view text);

// The one spelling of a device that parse_device reads back as the same value.
[[nodiscard]] std::string spell(const DeviceName& device);

}  // namespace apportion
