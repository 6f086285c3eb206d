// `apportion check`: what each job of a config would get on a device, with every term of the load rule.
#pragma once

#include <string>
#include <vector>

#include "shm/result.hpp"

namespace apportion {

struct CheckOptions {
  std::string file;    // empty: the usual places
  std::string device;  // empty: the file's
};

struct CheckAnswer {
  std::string text;                   // the tables and the warnings
  std::vector<std::string> refusals;  // why a broker would not start with it; empty where it would
};

// Errors: the file cannot be read or is wrong (file, line, what to do); the device is not there. Takes no
// memory.
[[nodiscard]] Result<CheckAnswer> check_config(const CheckOptions& options);

}  // namespace apportion
