// The keeper: a small process that starts first and stays, so that a broker's death costs no memory.
//
// Owns: copies of the broker's descriptors (kept_fds.hpp) and the broker's process. Promises: pings the
// broker each second; one that leaves kMissedPings pings in a row unanswered is killed, and a broker that
// died after it was ready is started again and given everything back. Never: makes a driver call, opens the
// config, or reads a byte that a client sent. One that dies before its first READY is not started again: its
// error is the user's to mend.
#pragma once

#include <string>
#include <vector>

namespace apportion {

// A stopped and continued keeper must not take its own sleep for the broker's silence: pings are counted, not
// time.
inline constexpr int kMissedPings = 5;

// argv of this program; the broker is the same program with kBrokerFlag and the private socket's number
// added. Returns the exit code: 0 after SIGTERM or SIGINT, else the broker's own.
[[nodiscard]] int run_keeper(const std::vector<std::string>& argv);

inline constexpr const char* kBrokerFlag = "--broker-channel";
inline constexpr const char* kRestartsFlag = "--restarts";

}  // namespace apportion
