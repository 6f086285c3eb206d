#include "shm/find_broker.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <filesystem>
#include <set>
#include <system_error>

#include "shm/quote.hpp"

namespace apportion {
namespace {

namespace fs = std::filesystem;

std::string reason_of(const std::string& path, const Error& error) {
  if (path.size() > kMostSocketPath)
    return "longer than the " + std::to_string(kMostSocketPath) + " bytes of a socket's path";
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0 && (errno == ENOENT || errno == ENOTDIR)) return "not there";
  switch (error.code) {
    case Errc::not_found:
      return "nobody answers";
    case Errc::denied:
      return "no permission";
    case Errc::busy:
      return "it does not answer in time";
    default:
      return error.message;
  }
}

// No broker's socket, whoever is to start one.
bool is_something_else(const std::string& path, const Error& error) {
  if (path.size() > kMostSocketPath) return false;
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0 && !S_ISSOCK(status.st_mode)) return true;
  return error.code == Errc::invalid;
}

struct Looked {
  std::vector<Connection> answered;  // one a device: the first
  std::string tried;                 // path (reason), ...
  Errc code = Errc::not_found;
  bool something_else = false;  // what lies at the last one is no broker's socket
};

Looked look_at(const std::vector<std::string>& paths) {
  Looked looked;
  std::set<fs::path> devices;
  for (const std::string& path : paths) {
    Result<Fd> socket = connect_to(path);
    if (socket) {
      const bool first = devices.insert(fs::path(path).parent_path().filename()).second;
      if (first) looked.answered.push_back({*std::move(socket), path});
      continue;
    }
    looked.something_else = is_something_else(path, socket.error());
    if (socket.error().code != Errc::not_found) looked.code = socket.error().code;
    const std::string reason =
        looked.something_else ? "not a broker's socket" : reason_of(path, socket.error());
    looked.tried += (looked.tried.empty() ? "" : ", ") + path + " (" + reason + ")";
  }
  return looked;
}

std::string list(const std::vector<Connection>& answered) {
  std::string text;
  for (const Connection& each : answered)
    text += (text.empty() ? "" : ", ") + each.path;
  return text;
}

Error nobody_at(const std::string& named_by, const Looked& looked) {
  if (looked.something_else) {
    return {Errc::invalid, named_by + " points to " + looked.tried +
                               "; set it to the socket of a broker or to its folder, or leave it out"};
  }
  return {looked.code,
          "no broker to talk to; tried " + looked.tried + ", where " + named_by +
              " points; correct it or leave it out, or start one with: apportiond --config apportion.toml"};
}

}  // namespace

bool begins_device(std::string_view prefix, std::string_view uuid) {
  const auto same = [](unsigned char a, unsigned char b) { return std::tolower(a) == std::tolower(b); };
  return prefix.size() <= uuid.size() && std::equal(prefix.begin(), prefix.end(), uuid.begin(), same);
}

Result<std::vector<std::string>> socket_candidates(const Environment& environment, std::string_view device) {
  if (!environment.apportion_socket.empty()) {
    Result<std::string> named = named_socket(environment);
    if (!named) return named.error();
    return std::vector<std::string>{*named};
  }
  std::vector<std::string> candidates;
  for (const std::string& base : {environment.xdg_runtime_dir, environment.run_dir}) {
    if (base.empty()) continue;
    std::vector<std::string> devices;
    std::error_code ignored;
    for (fs::directory_iterator at(base + "/apportion", ignored), end; !ignored && at != end;
         at.increment(ignored)) {
      std::string name = at->path().filename().string();
      // A stopped broker leaves its folder, without a socket: containers may have mounted it.
      std::error_code hidden;  // no permission: it may be there
      const bool socket =
          fs::symlink_status(socket_in(base, name), hidden).type() != fs::file_type::not_found;
      if (socket && begins_device(device, name)) devices.push_back(std::move(name));
    }
    std::sort(devices.begin(), devices.end());
    if (devices.empty()) devices.push_back(std::string(device) + "*");
    for (const std::string& name : devices)
      candidates.push_back(socket_in(base, name));
  }
  return candidates;
}

Result<Connection> connect_to_broker(const Environment& environment, std::string_view device,
                                     std::string_view choose_with) {
  const Result<std::vector<std::string>> candidates = socket_candidates(environment, device);
  if (!candidates) return candidates.error();
  Looked looked = look_at(*candidates);
  if (looked.answered.size() > 1) {
    return Error{Errc::invalid, "several brokers answer: " + list(looked.answered) + "; choose one with " +
                                    std::string(choose_with)};
  }
  if (!looked.answered.empty()) return std::move(looked.answered.front());
  if (!environment.apportion_socket.empty()) return nobody_at(environment.named_by, looked);
  if (!device.empty()) {
    const Result<std::vector<std::string>> everywhere = socket_candidates(environment);
    if (!everywhere) return everywhere.error();
    if (const Looked others = look_at(*everywhere); !others.answered.empty()) {
      return Error{looked.code, "no broker of a device " + in_quotes(device) + "; tried " + looked.tried +
                                    "; brokers answer at " + list(others.answered)};
    }
  }
  return Error{looked.code, "no broker to talk to; tried " + looked.tried +
                                "; start one with: apportiond --config apportion.toml"};
}

}  // namespace apportion
