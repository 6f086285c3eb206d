// Whether a limit of open files is enough for a pool: the keeper holds one descriptor per chunk.
#pragma once

#include <cstdint>

#include "config/config.hpp"
#include "config/load.hpp"
#include "shm/result.hpp"

namespace apportion {

// Errc::system with file, line and what to do. `hard_limit`: of RLIMIT_NOFILE; the keeper raises its soft
// one.
[[nodiscard]] Status check_open_files(const Config& config, const LoadReport& load, std::uint64_t hard_limit);

}  // namespace apportion
