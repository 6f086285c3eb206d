// Rules 9, 37, 38 and 39: who keeps physical memory alive, across processes and their deaths.
#include <signal.h>
#include <sys/socket.h>

#include <cstring>

#include "local.hpp"
#include "scene.hpp"
#include "simulator.hpp"
#include "tests/support/catch.hpp"

namespace apportion::conformance {
namespace {

// Puts `fd` into the socket and closes it here: from now on only the message holds it.
void put_in_flight(int socket, OwnedFd fd) {
  char byte = 0;
  iovec body{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &body;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  const int number = fd.get();
  std::memcpy(CMSG_DATA(header), &number, sizeof number);
  REQUIRE(::sendmsg(socket, &message, MSG_NOSIGNAL) == 1);
}

// Whether the observer sees `bytes` free and keeps seeing it: a bound for "does not come back".
bool stays(Scene& scene, std::size_t bytes) {
  for (int look = 0; look < 5; ++look)
    if (!scene.free_is(bytes)) return false;
  return true;
}

}  // namespace

TEST_CASE("rule 9: a mapping alone holds the memory", "[rule9]") {
  Scene scene;
  Peer peer = scene.with_context();
  const std::size_t before = scene.free_bytes();
  const PeerChunk chunk = peer.mapped_chunk(kChunk);
  REQUIRE(peer.release(chunk.handle) == kOk);
  CHECK(stays(scene, before - kChunk));
  REQUIRE(peer.unmap(chunk.address, kChunk) == kOk);
  CHECK(scene.free_becomes(before));
}

TEST_CASE("rule 9: an open export fd alone holds the memory", "[rule9]") {
  Scene scene;
  Peer peer = scene.started();
  const std::size_t before = scene.free_bytes();
  std::uint64_t handle = 0;
  REQUIRE(peer.create(kChunk, &handle) == kOk);
  OwnedFd fd = peer.exported(handle);
  REQUIRE(peer.release(handle) == kOk);
  CHECK(stays(scene, before - kChunk));
  fd.reset();
  CHECK(scene.free_becomes(before));
}

TEST_CASE("rule 9: an fd in flight in a socket alone holds the memory", "[rule9]") {
  Scene scene;
  Peer peer = scene.started();
  const std::size_t before = scene.free_bytes();
  std::uint64_t handle = 0;
  REQUIRE(peer.create(kChunk, &handle) == kOk);
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
  OwnedFd here(ends[0]);
  OwnedFd there(ends[1]);
  put_in_flight(here.get(), peer.exported(handle));
  REQUIRE(peer.release(handle) == kOk);
  CHECK(stays(scene, before - kChunk));
  here.reset();
  there.reset();
  CHECK(scene.free_becomes(before));
}

TEST_CASE("rule 9: an importer's mapping holds the memory when the exporter has ended", "[rule9]") {
  Scene scene;
  Peer importer = scene.with_context();
  const std::size_t before = scene.free_bytes();
  PeerChunk chunk;
  {
    Peer exporter = scene.started();
    std::uint64_t handle = 0;
    REQUIRE(exporter.create(kChunk, &handle) == kOk);
    chunk = importer.map_handle(importer.imported(exporter.exported(handle)), kChunk);
    REQUIRE(importer.release(chunk.handle) == kOk);
    REQUIRE(exporter.release(handle) == kOk);
  }
  CHECK(stays(scene, before - kChunk));
  REQUIRE(importer.unmap(chunk.address, kChunk) == kOk);
  CHECK(scene.free_becomes(before));
}

TEST_CASE("rule 37: CUDA is unusable in a forked child", "[rule37]") {
  Scene scene({.observer = false});
  Peer peer = scene.with_context();
  Reply codes;
  REQUIRE(peer.call(Op::fork_call, {}, &codes) == kOk);
  for (int call = 0; call < 3; ++call)
    CHECK(Answer{static_cast<CUresult>(codes.value[call])} != kOk);
  // The parent goes on as before.
  std::uint64_t handle = 0;
  CHECK(peer.create(kChunk, &handle) == kOk);
}

TEST_CASE("rule 37: a forked child holds its dead parent's memory until it ends too", "[rule37][rests38]") {
  Scene scene;
  Peer parent = scene.started();
  const std::size_t before = scene.free_bytes();
  std::uint64_t handle = 0;
  REQUIRE(parent.create(kChunk, &handle) == kOk);
  Reply child;
  REQUIRE(parent.call(Op::fork_idle, {}, &child) == kOk);
  parent.kill();
  CHECK(stays(scene, before - kChunk));
  REQUIRE(::kill(static_cast<pid_t>(child.value[0]), SIGKILL) == 0);
  CHECK(scene.free_becomes(before));
}

TEST_CASE("rule 38: what a killed process held comes back, and what others hold stays", "[rule38][rests9]") {
  Scene scene({.environment = {"CUDASIM_DEATH_MS=0-100"}});
  const std::size_t idle = scene.free_bytes();
  Peer survivor = scene.with_context();
  const std::size_t before = scene.free_bytes();
  const PeerChunk kept = survivor.mapped_chunk(kChunk);
  const PeerChunk shared = survivor.mapped_chunk(kChunk);
  REQUIRE(survivor.write_word(kept.address, 77) == kOk);
  REQUIRE(survivor.write_word(shared.address, 78) == kOk);

  Peer victim = scene.with_context();
  std::uint64_t handle = 0;
  REQUIRE(victim.create(kChunk, &handle) == kOk);        // a handle
  const PeerChunk mapped = victim.mapped_chunk(kChunk);  // a mapping
  REQUIRE(victim.release(mapped.handle) == kOk);
  std::uint64_t other = 0;
  REQUIRE(survivor.create(kChunk, &other) == kOk);
  std::uint64_t number = 0;
  REQUIRE(victim.import_fd(survivor.exported(other), &handle, &number) == kOk);  // an fd
  REQUIRE(victim.release(handle) == kOk);
  REQUIRE(survivor.release(other) == kOk);
  const std::uint64_t imported = victim.imported(survivor.exported(shared.handle));
  REQUIRE(victim.release(imported) == kOk);
  REQUIRE(scene.free_bytes() < before - 4 * kChunk);

  victim.kill();
  CHECK(scene.free_becomes(before - 2 * kChunk));
  CHECK(survivor.word(kept.address) == 77);
  CHECK(survivor.word(shared.address) == 78);
  survivor.kill();
  CHECK(scene.free_becomes(idle));
}

TEST_CASE("rule 39: the system holds only so many exported objects", "[rule39]") {
  SIMULATOR_ONLY("half a million exported objects take too long to make on a device");
  Scene scene({.observer = false});
  Peer peer = scene.started();
  const SimulatorControl control(scene.folder());
  CHECK(control->export_limit.load() == 524288);
  control->export_limit = 3;
  for (int object = 0; object < 3; ++object) {
    std::uint64_t handle = 0;
    REQUIRE(peer.create(kChunk, &handle) == kOk);
    const OwnedFd fd = peer.exported(handle);
  }
  std::uint64_t one_more = 0;
  REQUIRE(peer.create(kChunk, &one_more) == kOk);
  OwnedFd fd;
  CHECK(peer.export_fd(one_more, &fd) != kOk);
}

}  // namespace apportion::conformance
