#include "shm/socket_path.hpp"

#include <sys/socket.h>

#include <fstream>

#include "support.hpp"
#include "tests/support/catch.hpp"

using namespace apportion;
using namespace apportion::testing;
namespace fs = std::filesystem;

namespace {

Environment environment_in(const Folder& folder, uid_t uid = 1000) {
  return {"", folder / "user", folder / "run", uid};
}

mode_t mode_of(const std::string& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 ? status.st_mode & 0777 : 0;
}

// A socket file that nobody answers, as a killed broker leaves it.
void leave_stale_socket(const std::string& path) {
  REQUIRE(listen_at(path, 0600).ok());
}

}  // namespace

TEST_CASE("the broker's socket lies under /run for root and under XDG_RUNTIME_DIR for a user") {
  CHECK(broker_socket_path({"", "/run/user/0", "/run", 0}, "GPU-1").value() ==
        "/run/apportion/GPU-1/broker.sock");
  CHECK(broker_socket_path({"", "/run/user/5", "/run", 5}, "GPU-1").value() ==
        "/run/user/5/apportion/GPU-1/broker.sock");
  CHECK(broker_socket_path({"/x/a.sock", "/run/user/5", "/run", 5}, "GPU-1").value() == "/x/a.sock");
  CHECK(broker_socket_path({"", "", "/run", 5}, "GPU-1").error().message.find("XDG_RUNTIME_DIR") !=
        std::string::npos);
  CHECK(broker_socket_path({std::string(108, 'x'), "", "/run", 5}, "GPU-1").error().code == Errc::invalid);
}

TEST_CASE("a client looks in the user's folder, then in /run, and only at APPORTION_SOCKET where it is set") {
  Folder folder;
  Environment environment = environment_in(folder);
  SocketCandidates none = socket_candidates(environment);
  CHECK(none.paths.empty());
  CHECK(none.searched == std::vector<std::string>{folder / "user/apportion/*/broker.sock",
                                                  folder / "run/apportion/*/broker.sock"});

  leave_stale_socket(folder / "run/apportion/GPU-2/broker.sock");
  leave_stale_socket(folder / "user/apportion/GPU-1/broker.sock");
  const std::vector<std::string> both{folder / "user/apportion/GPU-1/broker.sock",
                                      folder / "run/apportion/GPU-2/broker.sock"};
  CHECK(socket_candidates(environment).paths == both);
  CHECK(socket_candidates(environment, "GPU-2").paths == std::vector<std::string>{both[1]});
  CHECK(socket_candidates(environment, "GPU-2").searched.size() == 2);

  environment.apportion_socket = folder / "run/apportion/GPU-2";  // containers mount the folder
  CHECK(socket_candidates(environment).paths == std::vector<std::string>{both[1]});
}

TEST_CASE(
    "C19: where no broker answers, the error lists every path with its reason and the command to start one") {
  Folder folder;
  leave_stale_socket(folder / "user/apportion/GPU-1/broker.sock");
  const auto connection = connect_to_broker(environment_in(folder));
  REQUIRE_FALSE(connection.ok());
  CHECK(connection.error().code == Errc::not_found);
  const std::string& message = connection.error().message;
  CHECK(message.find(folder / "user/apportion/GPU-1/broker.sock" + " (nobody answers)") != std::string::npos);
  CHECK(message.find(folder / "run/apportion/*/broker.sock" + " (not there)") != std::string::npos);
  CHECK(message.find("apportiond --config") != std::string::npos);
  CHECK(message.find('\n') == std::string::npos);
}

TEST_CASE("a broker is found and connected to; two of different devices must be chosen between") {
  Folder folder;
  const Environment environment = environment_in(folder);
  const auto first = listen_at(folder / "run/apportion/GPU-1/broker.sock", 0666);
  REQUIRE(first.ok());
  auto connection = connect_to_broker(environment);
  REQUIRE(connection.ok());
  CHECK(connection->path == folder / "run/apportion/GPU-1/broker.sock");
  const auto accepted = accept_from(first->get());
  REQUIRE(accepted.ok());
  const std::byte byte{1};
  REQUIRE(channel::send(connection->socket.get(), {&byte, 1}, {}, soon()).ok());
  channel::Datagram datagram;
  CHECK(channel::receive(accepted->get(), datagram, soon()).ok());

  const auto second = listen_at(folder / "run/apportion/GPU-2/broker.sock", 0666);
  REQUIRE(second.ok());
  connection = connect_to_broker(environment);
  REQUIRE_FALSE(connection.ok());
  CHECK(connection.error().code == Errc::invalid);
  CHECK(connection.error().message.find("GPU-1") != std::string::npos);
  CHECK(connection.error().message.find("GPU-2") != std::string::npos);
  CHECK(connect_to_broker(environment, "GPU-2").ok());
}

TEST_CASE("a listening socket has the mode asked for, and its fds are close-on-exec and non-blocking") {
  Folder folder;
  const mode_t mode = GENERATE(0600, 0660, 0666);
  const std::string path = folder / "a/b/broker.sock";
  const auto listening = listen_at(path, mode);
  REQUIRE(listening.ok());
  CHECK(mode_of(path) == mode);
  CHECK(accept_from(listening->get()).error().code == Errc::busy);  // none waits
  const auto connected = connect_to(path);
  REQUIRE(connected.ok());
  const auto accepted = accept_from(listening->get());
  REQUIRE(accepted.ok());
  for (const int fd : {listening->get(), connected->get(), accepted->get()}) {
    CHECK((::fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    CHECK((::fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
  }
}

TEST_CASE("F21: a stale socket of ours is replaced") {
  Folder folder;
  const std::string path = folder / "broker.sock";
  leave_stale_socket(path);
  REQUIRE(connect_to(path).error().code == Errc::not_found);
  const auto listening = listen_at(path, 0600);
  REQUIRE(listening.ok());
  CHECK(connect_to(path).ok());
}

TEST_CASE("F20 F21: a socket that somebody answers is left alone, and so is its owner") {
  Folder folder;
  const std::string path = folder / "broker.sock";
  const auto first = listen_at(path, 0600);
  REQUIRE(first.ok());
  CHECK(listen_at(path, 0600).error().code == Errc::busy);
  CHECK(connect_to(path).ok());
}

TEST_CASE("F21: a file, a folder or a symlink at the path is refused and left as it is") {
  Folder folder;
  const std::string path = folder / "broker.sock";
  const std::string target = folder / "target";
  SECTION("file") {
    std::ofstream(path) << "precious";
  }
  SECTION("folder") {
    fs::create_directory(path);
  }
  SECTION("symlink to a file") {
    std::ofstream(target) << "precious";
    fs::create_symlink(target, path);
  }
  SECTION("symlink to a stale socket of ours") {
    leave_stale_socket(target);
    fs::create_symlink(target, path);
  }
  SECTION("dangling symlink") {
    fs::create_symlink(target, path);
  }
  const fs::file_type before = fs::symlink_status(path).type();
  const auto refused = listen_at(path, 0600);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code == Errc::denied);
  CHECK(refused.error().message.find(path) != std::string::npos);
  CHECK(fs::symlink_status(path).type() == before);
}

TEST_CASE("F21: a socket of another uid is refused, stale or not") {
  if (!is_root()) APPORTION_SKIP("needs root to give a socket away");
  Folder folder;
  const std::string path = folder / "broker.sock";
  leave_stale_socket(path);
  REQUIRE(::chown(path.c_str(), kStranger, kStranger) == 0);
  CHECK(listen_at(path, 0600).error().code == Errc::denied);
  CHECK(fs::is_socket(path));
}

TEST_CASE("F21: a folder in which others can replace the socket is refused") {
  Folder folder;
  REQUIRE(::chmod(folder.path().c_str(), 0777) == 0);
  CHECK(listen_at(folder / "broker.sock", 0600).error().code == Errc::denied);
  REQUIRE(::chmod(folder.path().c_str(), 01777) == 0);  // as /tmp: only the owner replaces
  CHECK(listen_at(folder / "broker.sock", 0600).ok());
}

TEST_CASE("a socket that is not for this uid is denied by name") {
  if (!is_root()) APPORTION_SKIP("needs root to become another uid");
  Folder folder;
  REQUIRE(::chmod(folder.path().c_str(), 0755) == 0);
  const auto listening = listen_at(folder / "broker.sock", 0600);
  REQUIRE(listening.ok());
  CHECK(run_child([&] {
          if (::setuid(kStranger) != 0) return 1;
          return connect_to(folder / "broker.sock").error().code == Errc::denied ? 0 : 2;
        }) == 0);
}

TEST_CASE("folders that are made for a socket let every user through, whatever the umask") {
  Folder folder;
  const mode_t former = ::umask(0077);
  const auto listening = listen_at(folder / "a/b/broker.sock", 0666);
  ::umask(former);
  REQUIRE(listening.ok());
  for (const char* made : {"a", "a/b"}) {
    struct stat status {};
    REQUIRE(::stat((folder / made).c_str(), &status) == 0);
    CHECK((status.st_mode & 07777) == 0755);
  }
}

TEST_CASE("a socket that is removed takes its folder with it where that is the device's own, and empty") {
  Folder folder;
  for (const char* place : {"apportion/GPU-1", "apportion/MIG-1", "apportion/mine", "other/GPU-1"}) {
    REQUIRE(listen_at(folder / place + "/broker.sock", 0600).ok());
    remove_socket(folder / place + "/broker.sock");
    CHECK(::access((folder / place + "/broker.sock").c_str(), F_OK) != 0);
    const bool own = std::string(place) == "apportion/GPU-1" || std::string(place) == "apportion/MIG-1";
    CHECK((::access((folder / place).c_str(), F_OK) == 0) != own);
  }
  REQUIRE(listen_at(folder / "apportion/GPU-2/broker.sock", 0600).ok());
  REQUIRE(listen_at(folder / "apportion/GPU-2/admin.sock", 0600).ok());
  remove_socket(folder / "apportion/GPU-2/broker.sock");
  CHECK(::access((folder / "apportion/GPU-2/admin.sock").c_str(), F_OK) == 0);
}
