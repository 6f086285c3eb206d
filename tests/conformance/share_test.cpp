// Rules 16 and 20 to 26: memory passed between processes as file descriptors.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "local.hpp"
#include "scene.hpp"
#include "simulator.hpp"
#include "tests/support/catch.hpp"

namespace apportion::conformance {
namespace {

Answer exported(const Handle& handle, OwnedFd* fd) {
  int number = -1;
  const Answer answer{driver().mem_export_to_shareable_handle(&number, handle.get(),
                                                              CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0)};
  if (answer.ok()) *fd = OwnedFd(number);
  return answer;
}

// What an import of the fd `number` answers; what it made is given back at once.
Answer imported(int number) {
  CUmemGenericAllocationHandle handle = 0;
  const Answer answer{driver().mem_import_from_shareable_handle(
      &handle, reinterpret_cast<void*>(static_cast<std::uintptr_t>(number)),
      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)};
  if (answer.ok()) driver().mem_release(handle);
  return answer;
}

}  // namespace

TEST_CASE("rule 16: the importer chooses its own access", "[rule16]") {
  Scene scene({.observer = false});
  Peer exporter = scene.with_context();
  Peer importer = scene.with_context();
  const PeerChunk theirs = exporter.mapped_chunk(kChunk);
  REQUIRE(exporter.set_access(theirs.address, kChunk, CU_MEM_ACCESS_FLAGS_PROT_READ) == kOk);
  const std::uint64_t handle = importer.imported(exporter.exported(theirs.handle));
  const PeerChunk ours = importer.map_handle(handle, kChunk);  // reads and writes
  CHECK(importer.write_word(ours.address, 616) == kOk);
  CHECK(exporter.word(theirs.address) == 616);
}

TEST_CASE("rule 20: memory is not exported as a type that was not asked for at its creation", "[rule20]") {
  use_device();
  const Handle handle(kChunk, device_memory(CU_MEM_HANDLE_TYPE_NONE));
  OwnedFd fd;
  CHECK(exported(handle, &fd) == kInvalidValue);
}

TEST_CASE("rule 20: every export is a new close-on-exec fd", "[rule20]") {
  use_device();
  const Handle handle;
  OwnedFd first;
  OwnedFd second;
  REQUIRE(exported(handle, &first) == kOk);
  REQUIRE(exported(handle, &second) == kOk);
  CHECK(first.get() != second.get());
  CHECK((::fcntl(first.get(), F_GETFD) & FD_CLOEXEC) != 0);
  CHECK((::fcntl(second.get(), F_GETFD) & FD_CLOEXEC) != 0);
}

TEST_CASE("rule 21: an imported handle can be exported again, to a third process", "[rule21]") {
  Scene scene({.observer = false});
  Peer first = scene.with_context();
  Peer second = scene.with_context();
  Peer third = scene.with_context();
  const PeerChunk chunk = first.mapped_chunk(kChunk);
  REQUIRE(first.write_word(chunk.address, 2121) == kOk);
  OwnedFd again;
  REQUIRE(second.export_fd(second.imported(first.exported(chunk.handle)), &again) == kOk);
  const PeerChunk seen = third.map_handle(third.imported(again), kChunk);
  CHECK(third.word(seen.address) == 2121);
}

TEST_CASE("rule 22: an import does not consume its fd, and each import needs a release of its own",
          "[rule22]") {
  Scene scene;
  Peer exporter = scene.started();
  Peer importer = scene.with_context();
  const std::size_t before = scene.free_bytes();
  std::uint64_t made = 0;
  std::uint64_t first = 0;
  std::uint64_t second = 0;
  std::uint64_t number = 0;
  REQUIRE(exporter.create(kChunk, &made) == kOk);
  REQUIRE(importer.import_fd(exporter.exported(made), &first, &number) == kOk);
  CHECK(importer.import_number(static_cast<int>(number), &second) == kOk);
  CHECK(importer.close_fd(number) == kOk);
  REQUIRE(exporter.release(made) == kOk);
  REQUIRE(importer.release(first) == kOk);
  CHECK(scene.free_is(before - kChunk));
  CHECK(importer.release(second) == kOk);
  CHECK(scene.free_becomes(before));
}

TEST_CASE("rule 22: an fd that is no exported memory is refused", "[rule22]") {
  use_device();
  const OwnedFd null_device(::open("/dev/null", O_RDWR | O_CLOEXEC));
  const OwnedFd memfd(::memfd_create("not-device-memory", MFD_CLOEXEC));
  REQUIRE(::ftruncate(memfd.get(), static_cast<off_t>(kChunk)) == 0);
  CHECK(imported(null_device.get()) == kInvalidValue);
  CHECK(imported(memfd.get()) == kInvalidValue);
  CHECK(imported(-1) == kInvalidValue);
}

TEST_CASE("rule 23: an import needs no context", "[rule23]") {
  Scene scene({.observer = false});
  Peer exporter = scene.started();
  Peer importer = scene.started();
  std::uint64_t made = 0;
  std::uint64_t handle = 0;
  REQUIRE(exporter.create(kChunk, &made) == kOk);
  CHECK(importer.import_fd(exporter.exported(made), &handle) == kOk);
}

TEST_CASE("rule 23: an import works after the exporter was killed, and the bytes are there", "[rule23]") {
  Scene scene({.observer = false});
  Peer importer = scene.with_context();
  Peer exporter = scene.with_context();
  const PeerChunk theirs = exporter.mapped_chunk(kChunk);
  REQUIRE(exporter.write_word(theirs.address + kChunk - 8, 2323) == kOk);
  const OwnedFd fd = exporter.exported(theirs.handle);
  exporter.kill();
  std::uint64_t handle = 0;
  REQUIRE(importer.import_fd(fd, &handle) == kOk);
  const PeerChunk ours = importer.map_handle(handle, kChunk);
  CHECK(importer.word(ours.address + kChunk - 8) == 2323);
}

namespace {

// What an import answers when its exporter, the device's only user, was killed before.
Answer import_after_last_user(const char* persistence, std::uint64_t* word) {
  Scene scene({.environment = {std::string("CUDASIM_PERSISTENCE=") + persistence}, .observer = false});
  OwnedFd fd;
  {
    Peer exporter = scene.with_context();
    const PeerChunk chunk = exporter.mapped_chunk(kChunk);
    REQUIRE(exporter.write_word(chunk.address, 2424) == kOk);
    fd = exporter.exported(chunk.handle);
    exporter.kill();
  }
  Peer importer = scene.with_context();
  std::uint64_t handle = 0;
  const Answer answer = importer.import_fd(fd, &handle);
  if (answer.ok()) *word = importer.word(importer.map_handle(handle, kChunk).address);
  return answer;
}

}  // namespace

TEST_CASE("rule 24: with persistence off, exported memory ends with the device's last user",
          "[rule24][rests38]") {
  SIMULATOR_ONLY("the persistence mode of a device is never changed");
  std::uint64_t word = 0;
  CHECK(import_after_last_user("0", &word) != kOk);
}

TEST_CASE("rule 24: with persistence on, an fd alone keeps exported memory", "[rule24]") {
  SIMULATOR_ONLY("the persistence mode of a device is never changed");
  std::uint64_t word = 0;
  CHECK(import_after_last_user("1", &word) == kOk);
  CHECK(word == 2424);
}

TEST_CASE("rule 25: retain takes any address of a mapping and gives the same handle and a reference",
          "[rule25]") {
  Scene scene;
  Peer peer = scene.with_context();
  const std::size_t before = scene.free_bytes();
  const PeerChunk chunk = peer.mapped_chunk(kChunk);
  std::uint64_t retained = 0;
  REQUIRE(peer.retain(chunk.address + kChunk - 4096, &retained) == kOk);
  CHECK(retained == chunk.handle);
  // Two references now: the first release leaves one.
  REQUIRE(peer.release(chunk.handle) == kOk);
  REQUIRE(peer.unmap(chunk.address, kChunk) == kOk);
  CHECK(scene.free_is(before - kChunk));
  REQUIRE(peer.release(retained) == kOk);
  CHECK(scene.free_becomes(before));
}

TEST_CASE("rule 26: an imported handle tells its properties", "[rule26]") {
  Scene scene({.observer = false});
  Peer exporter = scene.started();
  Peer importer = scene.with_context();
  std::uint64_t made = 0;
  REQUIRE(exporter.create(kChunk, &made) == kOk);
  const std::uint64_t handle = importer.imported(exporter.exported(made));
  Reply properties;
  REQUIRE(importer.call(Op::properties, {handle}, &properties) == kOk);
  CHECK(properties.value[0] == CU_MEM_ALLOCATION_TYPE_PINNED);
  CHECK(properties.value[1] == CU_MEM_LOCATION_TYPE_DEVICE);
  CHECK(properties.value[2] == 0);
  CHECK(properties.value[3] == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

}  // namespace apportion::conformance
