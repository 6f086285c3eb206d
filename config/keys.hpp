// The parser's own list of keys, for docs/config.md (a test compares both ways) and for `--help`.
#pragma once

#include <string>
#include <vector>

namespace apportion {

struct KeyInfo {
  std::string table;  // "broker", "jobs" (any [jobs.NAME]) or "adhoc"
  std::string name;   // "pool"
  std::string
      default_text;  // as it could be written after `=`, or "-" where leaving the key out has no spelling
};

// In the order of docs/config.md.
[[nodiscard]] std::vector<KeyInfo> config_keys();

}  // namespace apportion
