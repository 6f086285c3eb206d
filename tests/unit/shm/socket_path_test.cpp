#include "shm/socket_path.hpp"

#include <sys/socket.h>

#include <fstream>

#include "support.hpp"
#include "tests/support/catch.hpp"

using namespace apportion;
using namespace apportion::testing;
namespace fs = std::filesystem;

namespace {

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
  CHECK(broker_socket_path({"/" + std::string(107, 'x'), "", "/run", 5}, "GPU-1").error().code ==
        Errc::invalid);
}

TEST_CASE("a named socket is an absolute path that fits, or its folder's broker.sock") {
  Folder folder;
  Environment environment;
  environment.apportion_socket = folder / "a.sock";
  CHECK(named_socket(environment).value() == folder / "a.sock");
  environment.apportion_socket = folder.path();
  CHECK(named_socket(environment).value() == folder / "broker.sock");
  for (const std::string relative : {"broker.sock", "./broker.sock", "run/apportion"}) {
    environment.apportion_socket = relative;
    const auto refused = named_socket(environment);
    REQUIRE_FALSE(refused.ok());
    CHECK(refused.error().code == Errc::invalid);
    CHECK(refused.error().message ==
          "APPORTION_SOCKET is a relative path, \"" + relative +
              "\", which means another place in each folder; write it from the root");
  }
  environment.named_by = "the option";
  environment.apportion_socket = "/" + std::string(kMostSocketPath, 'x');
  CHECK(named_socket(environment).error().code == Errc::invalid);
  CHECK(named_socket(environment).error().message.find("the option stands for a path of 108 bytes") == 0);
  environment.apportion_socket.pop_back();
  CHECK(named_socket(environment).ok());
}

TEST_CASE("a broker refuses to listen at a relative APPORTION_SOCKET") {
  CHECK(broker_socket_path({"a.sock", "/run/user/5", "/run", 5}, "GPU-1").error().code == Errc::invalid);
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
