// What both forms of `apportion status` show: figures derived from the broker's rows, and the words for its
// codes.
//
// Promises: sizes in bytes, never below 0 whatever the rows say. Pure functions.
#pragma once

#include <cstdint>

#include "cli/status_query.hpp"

namespace apportion {

// charged - idle - unspent - in transit: what is really used.
[[nodiscard]] std::uint64_t used_of(const SessionRecord& session);
[[nodiscard]] std::uint64_t used_of(const JobRecord& job);

// The free memory that the job's programs are told.
[[nodiscard]] std::uint64_t told_free_of(const JobRecord& job);

// Bytes of the device that the session's process holds outside the pool (its context and libraries), 0 where
// unknown.
[[nodiscard]] std::uint64_t overhead_of(const StatusAnswer& answer, const wire::SessionRow& session);
// Of all sessions together.
[[nodiscard]] std::uint64_t contexts_of(const StatusAnswer& answer);
// Device memory that the broker holds itself: the pool but for what is loose.
[[nodiscard]] std::uint64_t reserved_of(const StatusAnswer& answer);

[[nodiscard]] const char* state_word(std::uint32_t session_state);
[[nodiscard]] const char* holder_word(std::uint32_t holder_kind);

}  // namespace apportion
