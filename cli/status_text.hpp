// `apportion status` for people: the device, the pool, a row per job, a row per process.
#pragma once

#include <string>

#include "cli/status_query.hpp"

namespace apportion {

[[nodiscard]] std::string status_text(const StatusAnswer& answer);

}  // namespace apportion
