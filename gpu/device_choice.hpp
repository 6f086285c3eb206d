// What the key `device` (or --device) names, as a value. Pure: no driver, no files.
//
// Promises: every spelling is either read exactly or refused with its text; nothing is guessed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "shm/bytes.hpp"
#include "shm/result.hpp"

namespace apportion {

struct DeviceChoice {
  enum class Kind {
    index,      // "0": the driver's own order, after CUDA_VISIBLE_DEVICES
    uuid,       // "GPU-..." or "MIG-...", whole
    pci,        // "0000:65:00.0" or "65:00.0"
    simulated,  // "sim:8GiB"
  };
  Kind kind = Kind::index;
  std::uint32_t index = 0;  // kind index
  std::string name;         // kind uuid (with its prefix, lower-case digits) and pci (with its domain)
  Bytes total;              // kind simulated: the size of the device, a multiple of 2 MiB
};

// Errors: invalid, with the text and what is accepted.
[[nodiscard]] Result<DeviceChoice> parse_device_choice(std::string_view text);

}  // namespace apportion
