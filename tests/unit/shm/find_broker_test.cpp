#include "shm/find_broker.hpp"

#include <sys/socket.h>
#include <sys/un.h>

#include <fstream>

#include "support.hpp"
#include "tests/support/catch.hpp"

using namespace apportion;
using namespace apportion::testing;

namespace {

Environment environment_in(const Folder& folder) {
  return {"", folder / "user", folder / "run", 1000};
}

Environment naming(const std::string& path) {
  Environment environment;
  environment.apportion_socket = path;
  return environment;
}

// A socket file that nobody answers, as a killed broker leaves it.
void leave_stale_socket(const std::string& path) {
  REQUIRE(listen_at(path, 0600).ok());
}

Error error_of(const Environment& environment, std::string_view device = {}) {
  const auto connection = connect_to_broker(environment, device);
  REQUIRE_FALSE(connection.ok());
  CHECK(connection.error().message.find('\n') == std::string::npos);
  return connection.error();
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a client looks in the user's folder, then in /run, and only at APPORTION_SOCKET where it is set") {
  Folder folder;
  const Environment environment = environment_in(folder);
  CHECK(socket_candidates(environment).value() ==
        std::vector<std::string>{folder / "user/apportion/*/broker.sock",
                                 folder / "run/apportion/*/broker.sock"});
  leave_stale_socket(folder / "run/apportion/GPU-2/broker.sock");
  leave_stale_socket(folder / "user/apportion/GPU-1/broker.sock");
  CHECK(socket_candidates(environment).value() ==
        std::vector<std::string>{folder / "user/apportion/GPU-1/broker.sock",
                                 folder / "run/apportion/GPU-2/broker.sock"});
  // Containers mount the folder.
  CHECK(socket_candidates(naming(folder / "run/apportion/GPU-2")).value() ==
        std::vector<std::string>{folder / "run/apportion/GPU-2/broker.sock"});
}

TEST_CASE("a device is named by its UUID or by how that begins, whatever the case") {
  Folder folder;
  const Environment environment = environment_in(folder);
  leave_stale_socket(folder / "run/apportion/GPU-89ab-1/broker.sock");
  leave_stale_socket(folder / "run/apportion/GPU-89cd-2/broker.sock");
  const std::string user = folder / "user/apportion/";
  const std::string run = folder / "run/apportion/";
  CHECK(socket_candidates(environment, "gpu-89AB").value() ==
        std::vector<std::string>{user + "gpu-89AB*/broker.sock", run + "GPU-89ab-1/broker.sock"});
  CHECK(socket_candidates(environment, "GPU-89").value().size() == 3);
  CHECK(socket_candidates(environment, "GPU-89ab-12").value() ==
        std::vector<std::string>{user + "GPU-89ab-12*/broker.sock", run + "GPU-89ab-12*/broker.sock"});
}

TEST_CASE(
    "C19: where no broker answers, the error lists every path with its reason and the command to start one") {
  Folder folder;
  leave_stale_socket(folder / "user/apportion/GPU-1/broker.sock");
  const Error error = error_of(environment_in(folder));
  CHECK(error.code == Errc::not_found);
  CHECK(error.message == "no broker to talk to; tried " + (folder / "user/apportion/GPU-1/broker.sock") +
                             " (nobody answers), " + (folder / "run/apportion/*/broker.sock") +
                             " (not there); start one with: apportiond --config apportion.toml");
}

TEST_CASE("the folder that a stopped broker leaves is not among the paths that were tried") {
  Folder folder;
  std::filesystem::create_directories(folder / "run/apportion/GPU-1");
  leave_stale_socket(folder / "run/apportion/GPU-2/broker.sock");
  CHECK(socket_candidates(environment_in(folder)).value() ==
        std::vector<std::string>{folder / "user/apportion/*/broker.sock",
                                 folder / "run/apportion/GPU-2/broker.sock"});
}

TEST_CASE("where the named place is wrong, the error says who named it, and what is wrong with it") {
  Folder folder;
  const std::string path = folder / "broker.sock";
  SECTION("not there") {
    const Error error = error_of(naming(path));
    CHECK(error.code == Errc::not_found);
    CHECK(error.message == "no broker to talk to; tried " + path +
                               " (not there), where APPORTION_SOCKET points; correct it or leave it out, or "
                               "start one with: apportiond --config apportion.toml");
  }
  SECTION("nobody answers") {
    leave_stale_socket(path);
    CHECK(
        contains(error_of(naming(path)).message, path + " (nobody answers), where APPORTION_SOCKET points"));
  }
  SECTION("a file") {
    std::ofstream(path) << "precious";
    const Error error = error_of(naming(path));
    CHECK(error.code == Errc::invalid);
    CHECK(error.message ==
          "APPORTION_SOCKET points to " + path +
              " (not a broker's socket); set it to the socket of a broker or to its folder, or "
              "leave it out");
  }
  SECTION("a socket of another kind") {
    Fd other(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    REQUIRE(::bind(other.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(::listen(other.get(), 1) == 0);
    CHECK(error_of(naming(path)).code == Errc::invalid);
    CHECK(contains(error_of(naming(path)).message, path + " (not a broker's socket)"));
  }
  SECTION("relative") {
    CHECK(contains(error_of(naming("broker.sock")).message, "APPORTION_SOCKET is a relative path"));
  }
  SECTION("too long") {
    const Environment environment = naming(folder / std::string(120, 'x'));
    CHECK(error_of(environment).code == Errc::invalid);
    CHECK(contains(error_of(environment).message, "and a socket's has at most 107; use a shorter one"));
  }
  SECTION("named by a program") {
    Environment environment = naming(path);
    environment.named_by = "the option";
    CHECK(contains(error_of(environment).message, ", where the option points;"));
  }
}

TEST_CASE("a runtime folder whose name is too long for a socket is told from one without a broker") {
  Folder folder;
  Environment environment = environment_in(folder);
  environment.xdg_runtime_dir = folder / std::string(100, 'x');
  CHECK(
      contains(error_of(environment).message, "broker.sock (longer than the 107 bytes of a socket's path)"));
}

TEST_CASE("a broker is found and connected to; of several the error lists all, and one must be chosen") {
  Folder folder;
  const Environment environment = environment_in(folder);
  const std::string run = folder / "run/apportion/";
  const auto first = listen_at(run + "GPU-11/broker.sock", 0666);
  REQUIRE(first.ok());
  const auto connection = connect_to_broker(environment);
  REQUIRE(connection.ok());
  CHECK(connection->path == run + "GPU-11/broker.sock");
  const auto accepted = accept_from(first->get());
  REQUIRE(accepted.ok());
  const std::byte byte{1};
  REQUIRE(channel::send(connection->socket.get(), {&byte, 1}, {}, soon()).ok());
  channel::Datagram datagram;
  CHECK(channel::receive(accepted->get(), datagram, soon()).ok());

  const auto second = listen_at(run + "GPU-12/broker.sock", 0666);
  const auto third = listen_at(run + "GPU-3/broker.sock", 0666);
  REQUIRE((second.ok() && third.ok()));
  Error error = error_of(environment);
  CHECK(error.code == Errc::invalid);
  CHECK(error.message == "several brokers answer: " + run + "GPU-11/broker.sock, " + run +
                             "GPU-12/broker.sock, " + run +
                             "GPU-3/broker.sock; choose one with APPORTION_SOCKET");
  CHECK(error_of(environment, "GPU-1").message == "several brokers answer: " + run + "GPU-11/broker.sock, " +
                                                      run +
                                                      "GPU-12/broker.sock; choose one with APPORTION_SOCKET");
  CHECK(connect_to_broker(environment, "GPU-12").value().path == run + "GPU-12/broker.sock");
  CHECK(connect_to_broker(environment, "gpu-3").value().path == run + "GPU-3/broker.sock");
  error = error_of(environment, "GPU-4");
  CHECK(error.code == Errc::not_found);
  CHECK(contains(error.message, "no broker of a device \"GPU-4\"; tried "));
  CHECK(contains(error.message, "; brokers answer at " + run + "GPU-11/broker.sock, "));
  CHECK(contains(error.message, run + "GPU-3/broker.sock"));
}

TEST_CASE("one broker that is reached in two places is one") {
  Folder folder;
  const auto one = listen_at(folder / "user/apportion/GPU-1/broker.sock", 0666);
  const auto other = listen_at(folder / "run/apportion/GPU-1/broker.sock", 0666);
  REQUIRE((one.ok() && other.ok()));
  CHECK(connect_to_broker(environment_in(folder)).value().path ==
        folder / "user/apportion/GPU-1/broker.sock");
}
