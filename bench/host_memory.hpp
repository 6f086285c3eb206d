// How often this process asked the host for memory: malloc and its like are replaced in the bench's program.
#pragma once

#include <cstdint>

namespace apportion::bench {

// Since the start, of all threads and of all libraries. Async-signal-safe.
[[nodiscard]] std::uint64_t host_allocations() noexcept;

}  // namespace apportion::bench
