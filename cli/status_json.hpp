// `apportion status --json`: one line, sizes as exact integers of bytes, names from the glossary.
#pragma once

#include <string>

#include "cli/status_query.hpp"

namespace apportion {

[[nodiscard]] std::string status_json(const StatusAnswer& answer);

}  // namespace apportion
