// How a client finds its broker: the places it looks at, and one connection or one line that says why not.
//
// Promises: a failure names every path that was looked at with its reason, who named it where somebody did,
// and every broker that does answer. Never: goes on to the usual places when a place was named.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "shm/fd.hpp"
#include "shm/result.hpp"
#include "shm/socket_path.hpp"

namespace apportion {

// Whether `prefix` is how `uuid` begins, whatever the case, as in CUDA_VISIBLE_DEVICES: GPU-89ab.
[[nodiscard]] bool begins_device(std::string_view prefix, std::string_view uuid);

// Every path to try, in order; a pattern where nothing exists. With apportion_socket: that alone, whatever
// `device`. Without: the user's folder, then /run; of each the device folders that `device` begins. Errors:
// named_socket's.
[[nodiscard]] Result<std::vector<std::string>> socket_candidates(const Environment& environment,
                                                                 std::string_view device = {});

// Connects to the first candidate that answers. Errc::not_found: nobody there, or not for `device`;
// Errc::denied: not for this user; Errc::invalid: what was named cannot be a broker's socket, or brokers of
// several devices answer. `choose_with`: how the user names one of several.
struct Connection {
  Fd socket;
  std::string path;
};
[[nodiscard]] Result<Connection> connect_to_broker(const Environment& environment,
                                                   std::string_view device = {},
                                                   std::string_view choose_with = "APPORTION_SOCKET");

}  // namespace apportion
