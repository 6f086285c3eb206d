// The figures of a session, put together once: for the program (the C API's structures), for the broker (the
// report page). Each field is named in one place, figures.cpp.
//
// Pure: reads no page and takes no lock. Sizes in bytes.
#pragma once

#include "libclient/arena_stats.hpp"
#include "libclient/include/apportion/apportion.h"
#include "shm/job_layout.hpp"
#include "shm/report_layout.hpp"
#include "shm/wire.hpp"

namespace apportion {

// What a session is told of its job's figures.
struct Told {
  std::uint64_t total = 0;
  std::uint64_t free = 0;
};
[[nodiscard]] Told told_of(const JobFigures& job, bool reclaimable);

// struct_size says that all of it is filled.
[[nodiscard]] apportion_info info_of(const wire::Welcome& welcome, const JobFigures& job, bool reclaimable);
// limit: the total as told; reservable: addresses of the arena.
[[nodiscard]] apportion_stats stats_of(const ArenaStats& arena, std::uint64_t limit,
                                       std::uint64_t reservable);
[[nodiscard]] ReportFigures report_of(const ArenaStats& arena, std::uint64_t limit, std::uint64_t reservable);

}  // namespace apportion
