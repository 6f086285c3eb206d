// How long physical memory lives: handles, mappings and fds of several processes, and SIGKILL among them.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "cudasim/store/census.hpp"
#include "tests/support/catch.hpp"
#include "tests/unit/cudasim/child.hpp"

using namespace cudasim;
using namespace cudasim::testing;

namespace {

constexpr u64 kChunk = 32u << 20;
constexpr int kPatience = 20000;  // ms

FolderOptions small_device() {
  FolderOptions options;
  options.device_bytes = {1ull << 30};
  options.context_bytes = 16u << 20;
  return options;
}

// Creates `count` chunks, sends their fds, keeps the handles until it is killed.
void make_and_wait(Driver& driver, Link& link, u64 count) {
  for (u64 i = 0; i < count; i++) {
    auto handle = create_chunk(driver, kChunk);
    const int fd = export_chunk(driver, handle);
    link.send(i, fd);
    ::close(fd);
  }
  link.receive();
}

}  // namespace

TEST_CASE("a killed process's allocations are given back, with its context") {
  TemporaryFolder folder(small_device());
  Child child(folder.path(), [](Driver& driver, Link& link) {
    use_primary_context(driver);
    auto handle = create_chunk(driver, kChunk);
    map_chunk(driver, handle, kChunk);
    link.send(1);
    link.receive();
  });
  REQUIRE(child.link().receive() == 1);
  CHECK(folder->used_bytes(0) == kChunk + (16u << 20));
  child.kill();
  CHECK(folder->wait_used(0, 0, kPatience));
  CHECK(folder->census().allocations.empty());
}

TEST_CASE("an fd in a process that never called the driver keeps the bytes of a killed creator") {
  TemporaryFolder folder(small_device());
  int fd = -1;
  {
    Child maker(folder.path(), [](Driver& driver, Link& link) {
      use_primary_context(driver);
      auto handle = create_chunk(driver, kChunk);
      put_word(driver, map_chunk(driver, handle, kChunk) + kChunk - 8, 0xfeed);
      link.send(1, export_chunk(driver, handle));
      link.receive();
    });
    REQUIRE(maker.link().receive(&fd) == 1);
  }
  REQUIRE(fd >= 0);
  REQUIRE(folder->wait_used(0, kChunk, kPatience));
  Child reader(folder.path(), [](Driver& driver, Link& link) {
    int received = -1;
    link.receive(&received);
    use_primary_context(driver);
    link.send(get_word(driver, map_chunk(driver, import_chunk(driver, received), kChunk) + kChunk - 8));
    link.receive();
  });
  reader.link().send(1, fd);
  CHECK(reader.link().receive() == 0xfeed);
  reader.kill();
  CHECK(folder->wait_used(0, kChunk, kPatience));
  ::close(fd);
  CHECK(folder->used_bytes(0) == 0);
}

TEST_CASE("an fd in flight in a socket keeps the bytes until the socket is closed") {
  TemporaryFolder folder(small_device());
  auto child = std::make_unique<Child>(folder.path(), [](Driver& driver, Link& link) {
    auto handle = create_chunk(driver, kChunk);
    const int fd = export_chunk(driver, handle);
    link.send(1, fd);  // nobody receives it
    ::close(fd);
    MUST(SYM(driver, cuMemRelease)(handle) == CUDA_SUCCESS);
    std::exit(0);
  });
  REQUIRE(child->wait() == 0);
  CHECK(folder->used_bytes(0) == kChunk);
  CHECK(folder->census().referenced_bytes == kChunk);
  child.reset();  // closes the receiving end with the fd in it
  CHECK(folder->used_bytes(0) == 0);
}

TEST_CASE("MemGetInfo sees at once that the last fd of an allocation was closed") {
  TemporaryFolder folder(small_device());
  Child child(folder.path(), [](Driver& driver, Link&) {
    use_primary_context(driver);
    size_t before = 0, during = 0, after = 0;
    MUST(SYM(driver, cuMemGetInfo)(&before, nullptr) == CUDA_SUCCESS);
    auto handle = create_chunk(driver, kChunk);
    const int fd = export_chunk(driver, handle);
    MUST(SYM(driver, cuMemRelease)(handle) == CUDA_SUCCESS);
    MUST(SYM(driver, cuMemGetInfo)(&during, nullptr) == CUDA_SUCCESS);
    MUST(before - during == kChunk);
    ::close(fd);
    MUST(SYM(driver, cuMemGetInfo)(&after, nullptr) == CUDA_SUCCESS);
    MUST(after == before);
  });
  CHECK(child.wait() == 0);
}

TEST_CASE("a forked child keeps its killed parent's memory until it ends, mapped nowhere") {
  TemporaryFolder folder(small_device());
  Child parent(folder.path(), [](Driver& driver, Link& link) {
    map_chunk(driver, create_chunk(driver, kChunk), kChunk);
    const pid_t grandchild = ::fork();
    if (grandchild == 0) {
      MUST(SYM(driver, cuInit)(0) == CUDA_ERROR_NOT_INITIALIZED);
      link.receive();  // until the test closes its end
      ::_exit(0);
    }
    link.send(static_cast<u64>(grandchild));
    link.receive();
  });
  REQUIRE(parent.link().receive() != ~u64{0});
  parent.kill();
  const CensusReport held = folder->census();
  CHECK(held.referenced_bytes == kChunk);
  REQUIRE(held.allocations.size() == 1);
  CHECK(held.allocations[0].mapped_by.empty());
  parent.link().close();
  CHECK(folder->wait_used(0, 0, kPatience));
}

TEST_CASE("handles cost no file descriptors") {
  TemporaryFolder folder(small_device());
  Child::Options options;
  options.file_limit = 24;
  Child child(
      folder.path(),
      [](Driver& driver, Link&) {
        for (int i = 0; i < 200; i++)
          map_chunk(driver, create_chunk(driver, kGranularity), kGranularity);
        MUST(::open("/dev/null", O_RDONLY) >= 0);
      },
      options);
  CHECK(child.wait() == 0);
}

TEST_CASE("a process killed inside the folder's lock leaves totals that are recomputed") {
  TemporaryFolder folder(small_device());
  Child maker(folder.path(), [](Driver& driver, Link& link) { make_and_wait(driver, link, 3); });
  int fds[3];
  for (int& fd : fds)
    maker.link().receive(&fd);
  for (int fd : fds)
    ::close(fd);
  Child victim(folder.path(), [&](Driver&, Link&) {
    Folder::Lock lock(folder->folder());
    folder->folder().page().devices[0].used_bytes += 12345;  // half of a change
    ::raise(SIGKILL);
  });
  CHECK(victim.wait() == -SIGKILL);
  CHECK(folder->used_bytes(0) == 3 * kChunk);
  CHECK(folder->folder().page().lock_recoveries == 1);
}

TEST_CASE("with persistence off, what fds alone hold ends with the device's last user") {
  FolderOptions options = small_device();
  options.persistence = GENERATE(true, false);
  TemporaryFolder folder(options);
  int fd = -1;
  {
    Child maker(folder.path(), [](Driver& driver, Link& link) { make_and_wait(driver, link, 1); });
    maker.link().receive(&fd);
  }
  REQUIRE(fd >= 0);
  CHECK(folder->used_bytes(0) == (options.persistence ? kChunk : 0));
  Child importer(folder.path(), [](Driver& driver, Link& link) {
    int received = -1;
    link.receive(&received);
    CUmemGenericAllocationHandle handle = 0;
    MUST(SYM(driver, cuInit)(0) == CUDA_SUCCESS);
    link.send(static_cast<u64>(SYM(driver, cuMemImportFromShareableHandle)(
        &handle, reinterpret_cast<void*>(static_cast<intptr_t>(received)),
        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)));
  });
  importer.link().send(1, fd);
  CHECK(importer.link().receive() ==
        static_cast<u64>(options.persistence ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE));
  ::close(fd);
}
