// Asks a broker for its STATUS rows.
//
// Promises: a complete answer of one moment, or one line that says why not. Never: takes a session or memory.
#pragma once

#include <string>
#include <vector>

#include "shm/result.hpp"
#include "shm/wire.hpp"

namespace apportion {

struct StatusAnswer {
  wire::BrokerRow broker;
  std::vector<wire::JobRow> jobs;
  std::vector<wire::SessionRow> sessions;
  std::vector<wire::HolderRow> holders;
};

// `device`: its UUID or how that begins; may be empty where there is one broker. Errors: those of
// connect_to_broker (every path tried, every broker found), not_found where APPORTION_SOCKET leads to the
// broker of another device, protocol, timed_out after 10 s.
[[nodiscard]] Result<StatusAnswer> ask_status(const std::string& device);
// Of the broker that listens at `socket_path`.
[[nodiscard]] Result<StatusAnswer> ask_status_at(const std::string& socket_path);

}  // namespace apportion
