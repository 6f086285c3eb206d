// `apportion status` for people: the device, the pool, a row per job, a row per process.
#pragma once

#include <string>

#include "cli/status_query.hpp"

namespace apportion {

[[nodiscard]] std::string status_text(const StatusAnswer& answer);

// Bytes of the device that the session's process holds outside the pool (its context and libraries), 0 where
// unknown.
[[nodiscard]] std::uint64_t overhead_of(const StatusAnswer& answer, const wire::SessionRow& session);

// charged - idle - unspent - in transit: what the process really uses.
[[nodiscard]] std::uint64_t used_of(const SessionRecord& session);
[[nodiscard]] std::uint64_t used_of(const JobRecord& job);

[[nodiscard]] const char* state_word(std::uint32_t session_state);
[[nodiscard]] const char* holder_word(std::uint32_t holder_kind);

}  // namespace apportion
