// Text from a file, a command line or a peer, made fit to stand in a one-line message.
#pragma once

#include <string>
#include <string_view>

namespace apportion {

// In double quotes, at most 64 bytes of it; anything but printable ASCII becomes \xNN, so that a config file
// cannot forge a log line or move the terminal's cursor. Not named quoted: of a std::string, that may be
// std::quoted.
[[nodiscard]] std::string in_quotes(std::string_view text);

// The same without quotes and without a bound.
[[nodiscard]] std::string printable(std::string_view text);

}  // namespace apportion
