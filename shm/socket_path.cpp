#include "shm/socket_path.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "shm/quote.hpp"

namespace apportion {

static_assert(kMostSocketPath + 1 == sizeof(sockaddr_un::sun_path));

namespace {

constexpr const char* kSocketName = "broker.sock";
constexpr mode_t kFolderMode = 0755;
constexpr timeval kConnectTimeout{1, 0};  // only where the backlog is full (F28)

Result<sockaddr_un> address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() > kMostSocketPath) {
    return Error{Errc::invalid, "the socket path \"" + printable(path) + "\" is empty or longer than " +
                                    std::to_string(kMostSocketPath) +
                                    " bytes; set APPORTION_SOCKET to a shorter one"};
  }
  path.copy(address.sun_path, path.size());
  return address;
}

// Every missing folder on the way, with kFolderMode whatever the umask is: a daemon's umask of 0077 would
// make a socket that other users may use and cannot reach.
Status make_folders(const std::filesystem::path& folder) {
  std::error_code failed;
  if (folder.empty() || std::filesystem::exists(folder, failed)) return Done{};
  if (Status above = make_folders(folder.parent_path()); !above) return above.error();
  if (::mkdir(folder.c_str(), kFolderMode) != 0) {
    if (errno == EEXIST) return Done{};
    return system_error("cannot make the folder " + folder.string(), errno);
  }
  if (::chmod(folder.c_str(), kFolderMode) != 0)
    return system_error("cannot set the mode of the folder " + folder.string(), errno);
  return Done{};
}

// The folder's own rights decide who can put something else in the socket's place.
Status check_folder(const std::string& folder) {
  struct stat status {};
  if (::lstat(folder.c_str(), &status) != 0)
    return system_error("cannot use the socket's folder " + folder, errno);
  if (!S_ISDIR(status.st_mode))
    return Error{Errc::denied, folder + " is not a folder; remove it or choose another socket path"};
  const bool shared = (status.st_mode & (S_IWGRP | S_IWOTH)) != 0 && (status.st_mode & S_ISVTX) == 0;
  if (shared || (status.st_uid != ::geteuid() && status.st_uid != 0)) {
    return Error{Errc::denied, "others can replace files in " + folder +
                                   "; make it yours with mode 0755, or choose another socket path"};
  }
  return Done{};
}

// F21: what may be taken away is a socket of ours at which nobody answers.
Status clear_stale(const std::string& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) {
    if (errno == ENOENT) return Done{};
    return system_error("cannot look at " + path, errno);
  }
  if (!S_ISSOCK(status.st_mode)) {
    return Error{Errc::denied,
                 path + " exists and is no socket; it is left alone: remove it, or set another path"};
  }
  if (status.st_uid != ::geteuid()) {
    return Error{Errc::denied, path + " is a socket of uid " + std::to_string(status.st_uid) +
                                   "; it is left alone: remove it, or set another path"};
  }
  const Result<Fd> answer = connect_to(path);
  if (answer || answer.error().code == Errc::busy) {
    return Error{Errc::busy, "a process answers at " + path + " already; stop it, or set another path"};
  }
  if (answer.error().code != Errc::not_found) return answer.error();
  if (::unlink(path.c_str()) != 0 && errno != ENOENT)
    return system_error("cannot remove the stale socket " + path, errno);
  return Done{};
}

}  // namespace

Environment Environment::current() {
  const auto get = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value != nullptr ? value : "");
  };
  Environment environment;
  environment.apportion_socket = get("APPORTION_SOCKET");
  environment.xdg_runtime_dir = get("XDG_RUNTIME_DIR");
  environment.uid = ::geteuid();
  return environment;
}

std::string socket_in(const std::string& base, const std::string& device_uuid) {
  return base + "/apportion/" + device_uuid + "/" + kSocketName;
}

Result<std::string> named_socket(const Environment& environment) {
  std::string path = environment.apportion_socket;
  if (path.front() != '/') {
    return Error{Errc::invalid, environment.named_by + " is a relative path, \"" + printable(path) +
                                    "\", which means another place in each folder; write it from the root"};
  }
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) path += std::string("/") + kSocketName;
  if (path.size() > kMostSocketPath) {
    return Error{Errc::invalid, environment.named_by + " stands for a path of " +
                                    std::to_string(path.size()) + " bytes, " + in_quotes(path) +
                                    ", and a socket's has at most " + std::to_string(kMostSocketPath) +
                                    "; use a shorter one"};
  }
  return path;
}

Result<std::string> broker_socket_path(const Environment& environment, const std::string& device_uuid) {
  if (!environment.apportion_socket.empty()) return named_socket(environment);
  const std::string base = environment.uid == 0 ? environment.run_dir : environment.xdg_runtime_dir;
  if (base.empty()) {
    return Error{Errc::not_found,
                 "no place for the broker's socket: XDG_RUNTIME_DIR is not set; set it or APPORTION_SOCKET"};
  }
  std::string path = socket_in(base, device_uuid);
  const Result<sockaddr_un> address = address_of(path);
  if (!address) return address.error();
  return path;
}

Result<Fd> connect_to(const std::string& path) {
  const Result<sockaddr_un> address = address_of(path);
  if (!address) return address.error();
  Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!socket) return system_error("cannot make a socket", errno);
  // A blocking connect returns at once but for a full backlog; non-blocking it would fail there instead of
  // waiting.
  if (::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &kConnectTimeout, sizeof kConnectTimeout) != 0) {
    return system_error("cannot set a time limit for connecting", errno);
  }
  while (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) != 0) {
    if (errno == EINTR) continue;
    Error error = system_error("cannot connect to " + path, errno);
    if (errno == ENOENT || errno == ECONNREFUSED || errno == ENOTDIR) error.code = Errc::not_found;
    if (errno == EACCES || errno == EPERM) error.code = Errc::denied;
    if (errno == EAGAIN) error.code = Errc::busy;
    if (errno == EPROTOTYPE) error.code = Errc::invalid;
    return error;
  }
  if (::fcntl(socket.get(), F_SETFL, O_RDWR | O_NONBLOCK) != 0)
    return system_error("cannot set up a socket", errno);
  return socket;
}

Result<Fd> listen_at(const std::string& path, mode_t mode, int backlog) {
  const Result<sockaddr_un> address = address_of(path);
  if (!address) return address.error();
  std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (folder.empty()) folder = ".";
  if (Status made = make_folders(folder); !made) return made.error();
  if (Status checked = check_folder(folder); !checked) return checked.error();
  if (Status cleared = clear_stale(path); !cleared) return cleared.error();

  Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return system_error("cannot make a socket", errno);
  // The file appears with at most the socket's own mode: never open wider than asked, even for a moment.
  if (::fchmod(socket.get(), mode & 0600) != 0) return system_error("cannot set the mode of a socket", errno);
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) != 0) {
    Error error = system_error("cannot listen at " + path, errno);
    if (errno == EADDRINUSE) error.code = Errc::busy;
    if (errno == EACCES || errno == EPERM || errno == EROFS) error.code = Errc::denied;
    return error;
  }
  if (::listen(socket.get(), backlog) != 0) return system_error("cannot listen at " + path, errno);
  if (::chmod(path.c_str(), mode) != 0) return system_error("cannot set the mode of " + path, errno);
  return socket;
}

Result<Fd> accept_from(int listening_socket) {
  for (;;) {
    Fd socket(::accept4(listening_socket, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket) return socket;
    if (errno == EINTR || errno == ECONNABORTED) continue;
    Error error = system_error("cannot accept a connection", errno);
    if (errno == EAGAIN) error.code = Errc::busy;
    return error;
  }
}

}  // namespace apportion
