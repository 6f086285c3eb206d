#include "cli/programs.hpp"

#include <unistd.h>

#include <filesystem>
#include <vector>

namespace apportion {
namespace {

// In the build folder (this program is cli/apportion), then installed (this program is bin/apportion).
std::vector<std::string> places(Program program) {
  switch (program) {
    case Program::broker:
      return {"../broker/apportiond", "apportiond"};
    case Program::race_worker:
      return {"../tests/replay/replay_race_worker", "../lib/apportion/replay_race_worker"};
    case Program::simulator_control:
      return {"../cudasim/cudasim-ctl", "../lib/apportion/cudasim/cudasim-ctl"};
  }
  return {};
}

}  // namespace

Result<std::string> find_program(Program program) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  std::string tried;
  for (const std::string& place : places(program)) {
    const std::filesystem::path path = (self / place).lexically_normal();
    if (access(path.c_str(), X_OK) == 0) return path.string();
    tried += (tried.empty() ? "" : ", ") + path.string();
  }
  return Error{Errc::not_found, "a part of this installation is missing; tried: " + tried};
}

}  // namespace apportion
