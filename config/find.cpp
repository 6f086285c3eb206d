#include "config/find.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>

#include "config/config.hpp"

namespace apportion {
namespace {

std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

bool is_set(const std::optional<std::string>& value) {
  return value && !value->empty();
}

Error open_error(const std::string& path, int saved_errno) {
  Error error = system_error("cannot open the config " + path, saved_errno);
  if (saved_errno == ENOENT || saved_errno == ENOTDIR) error.code = Errc::not_found;
  if (saved_errno == EACCES || saved_errno == EPERM) error.code = Errc::denied;
  return error;
}

}  // namespace

ConfigSearch config_search(std::optional<std::string> flag) {
  ConfigSearch search;
  search.flag = std::move(flag);
  search.apportion_config = variable("APPORTION_CONFIG");
  search.xdg_config_home = variable("XDG_CONFIG_HOME");
  search.home = variable("HOME");
  return search;
}

std::vector<ConfigCandidate> config_candidates(const ConfigSearch& search) {
  if (search.flag) return {{*search.flag, search.flag_usage}};
  if (is_set(search.apportion_config)) return {{*search.apportion_config, "APPORTION_CONFIG"}};
  std::vector<ConfigCandidate> candidates;
  // The XDG base directory rules ask to ignore a relative path.
  if (is_set(search.xdg_config_home) && search.xdg_config_home->front() == '/') {
    candidates.push_back({*search.xdg_config_home + "/apportion/apportion.toml", "XDG_CONFIG_HOME"});
  } else if (is_set(search.home) && search.home->front() == '/') {
    candidates.push_back({*search.home + "/.config/apportion/apportion.toml", "HOME"});
  }
  candidates.push_back({search.system_path, "the system's"});
  return candidates;
}

Result<std::string> find_config(const ConfigSearch& search) {
  std::string tried;
  for (const ConfigCandidate& candidate : config_candidates(search)) {
    struct stat info {};
    if (::stat(candidate.path.c_str(), &info) == 0 || (errno != ENOENT && errno != ENOTDIR))
      return candidate.path;
    tried += (tried.empty() ? "" : ", ") + candidate.path + " (" + candidate.from + ")";
  }
  return Error{Errc::not_found, "no config found; tried " + tried + "; write one there, or name one with " +
                                    search.flag_usage + " or APPORTION_CONFIG"};
}

Result<std::string> read_config_text(const std::string& path) {
  // O_NONBLOCK: a named pipe in the config's place must not hang the broker.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return open_error(path, errno);
  struct stat info {};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(fd);
    return Error{Errc::invalid, "the config " + path + " is not a regular file; name an apportion.toml"};
  }
  std::string text;
  std::array<char, 4096> block{};
  while (text.size() <= kMaxConfigBytes) {
    const ssize_t got = ::read(fd, block.data(), block.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      const int saved_errno = errno;
      ::close(fd);
      return system_error("cannot read the config " + path, saved_errno);
    }
    if (got == 0) break;
    text.append(block.data(), static_cast<std::size_t>(got));
  }
  ::close(fd);
  if (text.size() > kMaxConfigBytes) {
    return Error{Errc::invalid, "the config " + path + " is larger than 1 MiB; name an apportion.toml"};
  }
  return text;
}

}  // namespace apportion
