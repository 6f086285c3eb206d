// Where the config is looked for, and reading it. The order: --config, APPORTION_CONFIG,
// $XDG_CONFIG_HOME/apportion/apportion.toml (~/.config where that is unset), /etc/apportion/apportion.toml.
//
// Promises: a path that somebody named is the only one tried: a mistyped --config never falls back to another
// file with other limits (C19). An empty variable counts as unset.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "shm/result.hpp"

namespace apportion {

struct ConfigSearch {
  std::optional<std::string> flag;              // what the command line names
  std::string flag_usage = "--config FILE";     // how it does, for messages
  std::optional<std::string> apportion_config;  // APPORTION_CONFIG
  std::optional<std::string> xdg_config_home;   // XDG_CONFIG_HOME
  std::optional<std::string> home;              // HOME
  std::string system_path = "/etc/apportion/apportion.toml";
};

struct ConfigCandidate {
  std::string path;
  std::string from;  // "--config", "APPORTION_CONFIG", ...
};

// With the variables of this process. Not thread-safe against setenv.
[[nodiscard]] ConfigSearch config_search(std::optional<std::string> flag);

// Every path that will be tried, in order; one only where the user named it.
[[nodiscard]] std::vector<ConfigCandidate> config_candidates(const ConfigSearch& search);

// The first candidate that exists (even if it cannot be read: reading it says so). not_found with one line
// that lists every path tried and what to do.
[[nodiscard]] Result<std::string> find_config(const ConfigSearch& search);

// The whole text of a regular file of at most kMaxConfigBytes. not_found, denied, invalid or system.
[[nodiscard]] Result<std::string> read_config_text(const std::string& path);

}  // namespace apportion
