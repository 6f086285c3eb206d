#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <set>

#include "bench/peers/lease_server.hpp"
#include "bench/peers/ping_pong.hpp"
#include "tests/support/catch.hpp"

using namespace apportion;
using namespace apportion::bench;

namespace {

struct Folder {
  Folder() {
    path = (std::filesystem::temp_directory_path() / "apportion-peers-XXXXXX").string();
    REQUIRE(::mkdtemp(path.data()) != nullptr);
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string path;
};

ino_t identity(const Fd& fd) {
  struct stat file {};
  REQUIRE(::fstat(fd.get(), &file) == 0);
  return file.st_ino;
}

}  // namespace

TEST_CASE("the ping-pong brings a descriptor each time, and leaves none open") {
  const auto peer = PingPong::start();
  REQUIRE(peer.ok());
  const auto next_fd = [] { return Fd(::dup(0)).get(); };
  const int before = next_fd();
  for (int i = 0; i < 100; ++i)
    REQUIRE((*peer)->exchange());
  CHECK(next_fd() == before);
}

TEST_CASE("the lease server gives a guarantee to each, nothing twice, and no more than the guarantee") {
  const Folder folder;
  const std::string path = folder.path + "/peer.sock";
  const auto server = LeaseServer::start(path, 8, 4);
  REQUIRE(server.ok());
  auto first = LeaseClient::open(path);
  auto second = LeaseClient::open(path);
  REQUIRE(first.ok());
  REQUIRE(second.ok());
  const auto a = first->request(4);
  const auto b = second->request(4);
  REQUIRE(a.ok());
  REQUIRE(b.ok());
  std::set<ino_t> seen;
  for (const auto* chunks : {&*a, &*b})
    for (const Fd& fd : *chunks)
      seen.insert(identity(fd));
  CHECK(seen.size() == 8);
  CHECK(first->request(1).error().code == Errc::quota);
}

TEST_CASE("what a client of the lease server held is free again when it has hung up") {
  const Folder folder;
  const std::string path = folder.path + "/peer.sock";
  const auto server = LeaseServer::start(path, 4, 4);
  REQUIRE(server.ok());
  {
    auto first = LeaseClient::open(path);
    REQUIRE(first.ok());
    REQUIRE(first->request(4).ok());
    auto crowded = LeaseClient::open(path);
    REQUIRE(crowded.ok());
    CHECK(crowded->request(1).error().code == Errc::quota);
  }
  // The server hears of both ends before it hears of a later connection.
  auto second = LeaseClient::open(path);
  REQUIRE(second.ok());
  CHECK(second->request(4).ok());
}
