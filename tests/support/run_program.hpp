// Runs a program to its end and keeps what it wrote.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace apportion::testing {

struct Ran {
  int status = -1;     // exit status; 128 + signal when it was killed
  std::string output;  // standard output
};

// `variables` are set in its environment on top of ours; an empty value removes one. Aborts when it cannot be
// started.
Ran run_program(const std::vector<std::string>& command,
                const std::map<std::string, std::string>& variables = {});

// A program of the build: `name` is its path below the build folder, found by APPORTION_BUILD_DIR, else from
// where this program lies.
std::string built(const std::string& name);

}  // namespace apportion::testing
