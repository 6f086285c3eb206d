// Where the other programs of this installation lie.
#pragma once

#include <string>

#include "shm/result.hpp"

namespace apportion {

enum class Program { broker, race_worker, simulator_control };

// Beside this program in a build folder, else where an installation keeps it (beside, or ../lib/apportion).
// Errc::not_found with every path tried.
[[nodiscard]] Result<std::string> find_program(Program program);

}  // namespace apportion
