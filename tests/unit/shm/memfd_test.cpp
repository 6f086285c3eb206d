#include "shm/memfd.hpp"

#include <sys/mman.h>

#include <cerrno>

#include "shm/page_mapping.hpp"
#include "support.hpp"
#include "tests/support/catch.hpp"

using namespace apportion;
using namespace apportion::testing;

namespace {

constexpr Bytes kSize{8192};

bool forbidden(int saved_errno) {
  return saved_errno == EPERM || saved_errno == EACCES;
}

// Every way to change a page that a holder of its fd has. 0, or the number of the way that was not refused.
int attack(int fd, const void* mapped_read_only) {
  if (::mmap(nullptr, kSize.value, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) != MAP_FAILED ||
      !forbidden(errno))
    return 1;
  if (::mmap(nullptr, kSize.value, PROT_WRITE, MAP_SHARED, fd, 0) != MAP_FAILED || !forbidden(errno))
    return 2;
  if (::write(fd, "x", 1) >= 0 || !forbidden(errno)) return 3;
  if (::pwrite(fd, "x", 1, 100) >= 0 || !forbidden(errno)) return 4;
  if (::ftruncate(fd, 0) == 0 || !forbidden(errno)) return 5;
  if (::ftruncate(fd, 1 << 20) == 0 || !forbidden(errno)) return 6;
  if (::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) == 0 || !forbidden(errno))
    return 7;
  if (::fallocate(fd, 0, 0, 1 << 20) == 0 || !forbidden(errno)) return 8;
  if (::fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) == 0 || !forbidden(errno)) return 9;
  auto* page = const_cast<void*>(mapped_read_only);
  if (::mprotect(page, kSize.value, PROT_READ | PROT_WRITE) == 0 || !forbidden(errno)) return 10;
  if (::madvise(page, 4096, MADV_REMOVE) == 0 || !forbidden(errno)) return 11;
  // Reopening makes a new description with rights of its own; the seals are the file's.
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  const int again = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (again < 0) return forbidden(errno) ? 0 : 12;
  if (::mmap(nullptr, kSize.value, PROT_READ | PROT_WRITE, MAP_SHARED, again, 0) != MAP_FAILED ||
      !forbidden(errno))
    return 13;
  if (::write(again, "x", 1) >= 0 || !forbidden(errno)) return 14;
  if (::ftruncate(again, 0) == 0 || !forbidden(errno)) return 15;
  if (::fallocate(again, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) == 0 || !forbidden(errno))
    return 16;
  if (::open(path.c_str(), O_RDWR | O_TRUNC | O_CLOEXEC) >= 0 || !forbidden(errno)) return 17;
  return 0;
}

struct SealedPage {
  Fd fd;
  PageMapping writer;
};

SealedPage make_sealed() {
  auto fd = make_memfd("apportion-test", kSize);
  REQUIRE(fd.ok());
  auto writer = PageMapping::map(fd->get(), kSize, PageMapping::Access::read_write);
  REQUIRE(writer.ok());
  REQUIRE(seal_read_only(*fd).ok());
  return {std::move(*fd), std::move(*writer)};
}

}  // namespace

TEST_CASE("F22: a sealed page can be changed in no way by its own uid, and its writer still writes") {
  const SealedPage page = make_sealed();
  auto* word = static_cast<volatile int*>(page.writer.data());
  *word = 41;
  const auto reader = PageMapping::map(page.fd.get(), kSize, PageMapping::Access::read_only);
  REQUIRE(reader.ok());
  CHECK(run_child([&] { return attack(page.fd.get(), reader->data()); }) == 0);
  *word = 42;
  CHECK(*static_cast<const volatile int*>(reader->data()) == 42);
}

TEST_CASE("F22: a sealed page can be changed in no way by another uid, who cannot even reopen it") {
  if (!is_root()) APPORTION_SKIP("needs root to become another uid");
  const SealedPage page = make_sealed();
  const int code = run_child([&] {
    if (::setgid(kStranger) != 0 || ::setuid(kStranger) != 0) return 100;
    const auto reader = PageMapping::map(page.fd.get(), kSize, PageMapping::Access::read_only);
    if (!reader.ok()) return 101;
    const std::string path = "/proc/self/fd/" + std::to_string(page.fd.get());
    if (::open(path.c_str(), O_RDWR | O_CLOEXEC) >= 0 || errno != EACCES) return 102;
    return attack(page.fd.get(), reader->data());
  });
  CHECK(code == 0);
}

TEST_CASE("F22: the attacks above do succeed on a page that is not sealed") {
  auto fd = make_memfd("apportion-test", kSize);
  REQUIRE(fd.ok());
  const auto reader = PageMapping::map(fd->get(), kSize, PageMapping::Access::read_only);
  REQUIRE(reader.ok());
  CHECK(run_child([&] { return attack(fd->get(), reader->data()); }) == 1);
}

TEST_CASE("F22: mapping a sealed page writable is denied by name") {
  const SealedPage page = make_sealed();
  const auto again = PageMapping::map(page.fd.get(), kSize, PageMapping::Access::read_write);
  REQUIRE_FALSE(again.ok());
  CHECK(again.error().code == Errc::denied);
}

TEST_CASE("a page with a sealed size cannot shrink under its reader, and stays writable") {
  auto fd = make_memfd("apportion-test", kSize);
  REQUIRE(fd.ok());
  CHECK(require_sealed_size(fd->get()).error().code == Errc::protocol);
  REQUIRE(seal_size(*fd).ok());
  CHECK(require_sealed_size(fd->get()).ok());
  CHECK(::ftruncate(fd->get(), 0) == -1);
  CHECK(::fcntl(fd->get(), F_ADD_SEALS, F_SEAL_WRITE) == -1);
  CHECK(PageMapping::map(fd->get(), kSize, PageMapping::Access::read_write).ok());
}

TEST_CASE("a file that is no memfd is not taken for a sealed page") {
  const Fd file(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  CHECK(require_sealed_size(file.get()).error().code == Errc::protocol);
}

TEST_CASE("a memfd is close-on-exec, of the size asked for, zero, and gone with its last holder") {
  const std::size_t before = open_fds();
  {
    auto fd = make_memfd("apportion-test", kSize);
    REQUIRE(fd.ok());
    CHECK((::fcntl(fd->get(), F_GETFD) & FD_CLOEXEC) != 0);
    CHECK(size_of(fd->get()).value() == kSize);
    auto mapping = PageMapping::map(fd->get(), kSize, PageMapping::Access::read_write);
    REQUIRE(mapping.ok());
    CHECK(mapping->size() == kSize);
    fd->reset();
    static_cast<char*>(mapping->data())[kSize.value - 1] = 1;  // the mapping needs no fd
    CHECK(static_cast<char*>(mapping->data())[0] == 0);
  }
  CHECK(open_fds() == before);
}
