// Who may join a job: uid and gid rules, resolved to numbers when the file is read, compared with what the
// kernel says about a peer and never with what the peer says about itself.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shm/result.hpp"

namespace apportion {

struct UserRule {
  std::string text;  // as written: "alice", "1000", "@ml"
  bool is_group = false;
  std::uint32_t id = 0;  // uid, or gid of a group

  friend bool operator==(const UserRule&, const UserRule&) = default;
};

// Where names come from: the system's databases, or a test's table.
struct Names {
  std::function<std::optional<std::uint32_t>(const std::string&)> uid_of;
  std::function<std::optional<std::uint32_t>(const std::string&)> gid_of;
};

// getpwnam_r and getgrnam_r. Thread-safe. An error of the database counts as "no such name".
[[nodiscard]] Names system_names();

// "alice", "1000", "@ml", "@1001". Errc::invalid that quotes `text`, for an unknown name too.
[[nodiscard]] Result<UserRule> parse_user_rule(std::string_view text, const Names& names);

// True where `rules` is empty (no rule: whoever reaches the socket), or one of them names `uid` or one of
// `gids` (primary and supplementary, as SO_PEERCRED and SO_PEERGROUPS give them). Root is a uid like another.
[[nodiscard]] bool may_join(std::span<const UserRule> rules, std::uint32_t uid,
                            std::span<const std::uint32_t> gids);

}  // namespace apportion
