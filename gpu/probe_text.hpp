// The probe's report for people and for programs.
#pragma once

#include <string>

#include "gpu/probe.hpp"

namespace apportion {

// A table with one row a capability, the device above it, and one line of conclusion. Ends with a newline.
[[nodiscard]] std::string to_table(const ProbeReport& report);

// One line of JSON:
// {"device":{...},"usable":true,"capabilities":[{"name":..,"needed":..,"claimed":..,"works":..,
// "detail":..}]}; null where unknown or not tried. Sizes in bytes.
[[nodiscard]] std::string to_json(const ProbeReport& report);

}  // namespace apportion
