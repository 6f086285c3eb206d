#include "broker/kept_fds.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "shm/memfd.hpp"
#include "shm/socket_path.hpp"
#include "shm/wire.hpp"
#include "tests/support/catch.hpp"

using namespace apportion;

namespace {

channel::Deadline soon() {
  return std::chrono::steady_clock::now() + std::chrono::seconds(20);
}

Fd some_file() {
  Result<Fd> memfd = make_memfd("kept", 4_KiB);
  REQUIRE(memfd.ok());
  return *std::move(memfd);
}

ino_t inode_of(const Fd& fd) {
  struct stat status {};
  REQUIRE(::fstat(fd.get(), &status) == 0);
  return status.st_ino;
}

wire::Put put_of(std::initializer_list<std::uint64_t> ids) {
  auto put = wire::make<wire::Put>(1, 0);
  for (const std::uint64_t id : ids)
    put.entries[put.part.count++] = {.id = id,
                                     .bytes = id * 100,
                                     .kind = static_cast<std::uint32_t>(wire::KeptKind::chunk),
                                     .reserved = 0};
  return put;
}

std::vector<Fd> files(std::size_t count) {
  std::vector<Fd> fds;
  for (std::size_t i = 0; i < count; ++i)
    fds.push_back(some_file());
  return fds;
}

}  // namespace

TEST_CASE("F53: kept fds: putting again replaces, deleting what is not there does nothing") {
  KeptFds kept;
  kept.put(put_of({1, 2}), files(2));
  kept.put(put_of({2, 3}), files(2));
  CHECK(kept.size() == 3);
  auto del = wire::make<wire::Del>(1, 0);
  del.part.count = 2;
  del.entries[0] = {
      .id = 2, .bytes = 0, .kind = static_cast<std::uint32_t>(wire::KeptKind::chunk), .reserved = 0};
  del.entries[1] = {
      .id = 9, .bytes = 0, .kind = static_cast<std::uint32_t>(wire::KeptKind::chunk), .reserved = 0};
  CHECK(kept.del(del) == 1);
  CHECK(kept.del(del) == 0);
  CHECK(kept.size() == 2);
}

TEST_CASE("kept fds: everything is handed over in parts, each under its id, and stays kept") {
  KeptFds kept;
  std::vector<ino_t> inodes(301);
  for (std::uint64_t id = 1; id <= 300; ++id) {
    std::vector<Fd> one = files(1);
    inodes[id] = inode_of(one[0]);
    kept.put(put_of({id}), std::move(one));
  }
  Result<channel::Pair> pair = channel::make_pair();
  REQUIRE(pair.ok());
  const Result<std::uint64_t> handed = kept.hand_over(pair->first.get(), 77, soon());
  REQUIRE(handed.ok());
  CHECK(*handed == 300);
  CHECK(kept.size() == 300);
  channel::Datagram datagram;
  std::size_t seen = 0;
  while (seen < 300) {
    REQUIRE(channel::receive(pair->second.get(), datagram, soon()).ok());
    const Result<wire::Message> message = wire::decode(datagram.bytes(), wire::Sender::keeper_pair);
    REQUIRE(message.ok());
    const auto& put = std::get<wire::Put>(*message);
    CHECK(put.header.request_id == 77);
    REQUIRE(datagram.fds.size() == put.part.count);
    for (std::size_t i = 0; i < put.part.count; ++i, ++seen) {
      CHECK(inode_of(datagram.fds[i]) == inodes[put.entries[i].id]);
      CHECK(put.entries[i].bytes == put.entries[i].id * 100);
    }
  }
}

TEST_CASE("kept fds: the socket's file is removed by who is left, and only where it is kept") {
  const std::string folder = std::filesystem::temp_directory_path() / ("kept-" + std::to_string(::getpid()));
  REQUIRE(std::filesystem::create_directory(folder));
  const std::string path = folder + "/broker.sock";
  KeptFds kept;
  kept.remove_socket_file();
  {
    Result<Fd> listening = listen_at(path, 0600);
    REQUIRE(listening.ok());
    wire::Put put = put_of({0});
    put.entries[0].kind = static_cast<std::uint32_t>(wire::KeptKind::listening_socket);
    std::vector<Fd> fds;
    fds.push_back(*std::move(listening));
    kept.put(put, std::move(fds));
  }
  CHECK(std::filesystem::exists(path));
  kept.remove_socket_file();
  CHECK_FALSE(std::filesystem::exists(path));
  std::filesystem::remove_all(folder);
}
