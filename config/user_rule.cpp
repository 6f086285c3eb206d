#include "config/user_rule.hpp"

#include <grp.h>
#include <pwd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>

#include "shm/quote.hpp"

namespace apportion {
namespace {

constexpr std::size_t kMaxRecord = std::size_t{1} << 20;  // groups with thousands of members exist

// `call(buffer)` is getpwnam_r or getgrnam_r; grows the buffer while the record does not fit.
template <typename Call>
std::optional<std::uint32_t> look_up(const Call& call) {
  for (std::vector<char> buffer(1024); buffer.size() <= kMaxRecord; buffer.resize(buffer.size() * 4)) {
    std::optional<std::uint32_t> id;
    const int error = call(buffer, id);
    if (error == EINTR) continue;
    if (error != ERANGE) return id;
  }
  return std::nullopt;
}

}  // namespace

Names system_names() {
  Names names;
  names.uid_of = [](const std::string& name) {
    return look_up([&](std::vector<char>& buffer, std::optional<std::uint32_t>& id) {
      passwd entry{};
      passwd* found = nullptr;
      const int error = getpwnam_r(name.c_str(), &entry, buffer.data(), buffer.size(), &found);
      if (found != nullptr) id = entry.pw_uid;
      return error;
    });
  };
  names.gid_of = [](const std::string& name) {
    return look_up([&](std::vector<char>& buffer, std::optional<std::uint32_t>& id) {
      group entry{};
      group* found = nullptr;
      const int error = getgrnam_r(name.c_str(), &entry, buffer.data(), buffer.size(), &found);
      if (found != nullptr) id = entry.gr_gid;
      return error;
    });
  };
  return names;
}

Result<UserRule> parse_user_rule(std::string_view text, const Names& names) {
  UserRule rule{std::string{text}, text.starts_with('@'), 0};
  const std::string name{rule.is_group ? text.substr(1) : text};
  const char* const kind = rule.is_group ? "group" : "user";
  if (name.empty() || name.find('\0') != std::string::npos) {
    return Error{Errc::invalid,
                 in_quotes(text) + R"( names nobody; write a user "alice", a uid "1000" or a group "@ml")"};
  }
  if (name.find_first_not_of("0123456789") == std::string::npos) {
    const auto [end, failed] = std::from_chars(name.data(), name.data() + name.size(), rule.id);
    // The kernel uses the last id for "no such user".
    if (failed != std::errc{} || rule.id == UINT32_MAX) {
      return Error{Errc::invalid, in_quotes(text) + " is not an id that a " + kind + " can have"};
    }
    return rule;
  }
  const std::optional<std::uint32_t> id = rule.is_group ? names.gid_of(name) : names.uid_of(name);
  if (!id) {
    return Error{Errc::invalid, in_quotes(text) + " is no " + kind +
                                    " that this system knows; create it or correct the name"};
  }
  rule.id = *id;
  return rule;
}

bool may_join(std::span<const UserRule> rules, std::uint32_t uid, std::span<const std::uint32_t> gids) {
  if (rules.empty()) return true;
  return std::any_of(rules.begin(), rules.end(), [&](const UserRule& rule) {
    if (!rule.is_group) return rule.id == uid;
    return std::find(gids.begin(), gids.end(), rule.id) != gids.end();
  });
}

}  // namespace apportion
