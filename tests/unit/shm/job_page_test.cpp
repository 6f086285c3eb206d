#include "shm/job_page.hpp"

#include <atomic>
#include <cstring>
#include <thread>

#include "shm/fault_point.hpp"
#include "shm/memfd.hpp"
#include "support.hpp"
#include "tests/support/catch.hpp"

using namespace apportion;
using namespace apportion::testing;

namespace {

JobFigures figures_of(std::uint64_t mark) {
  JobFigures figures;
  auto* words = reinterpret_cast<std::uint64_t*>(&figures);
  for (std::size_t i = 0; i < sizeof figures / 8; ++i)
    words[i] = mark + i;
  return figures;
}

bool is(const JobFigures& figures, std::uint64_t mark) {
  const JobFigures expected = figures_of(mark);
  return std::memcmp(&figures, &expected, sizeof figures) == 0;
}

IpcHandle handle_of(std::uint8_t mark) {
  IpcHandle handle;
  handle.fill(mark);
  return handle;
}

// A page like the writer's, with some bytes changed: its reader's answer.
Result<JobPageReader> open_changed(const JobPageWriter& writer, std::size_t at, const void* bytes,
                                   std::size_t count) {
  std::vector<std::byte> page(size_of(writer.fd()).value().value);
  REQUIRE(::pread(writer.fd(), page.data(), page.size(), 0) == static_cast<ssize_t>(page.size()));
  std::memcpy(page.data() + at, bytes, count);
  auto fd = make_memfd("apportion-test", Bytes{page.size()});
  REQUIRE(fd.ok());
  REQUIRE(::pwrite(fd->get(), page.data(), page.size(), 0) == static_cast<ssize_t>(page.size()));
  REQUIRE(seal_size(*fd).ok());
  return JobPageReader::open(fd->get());
}

}  // namespace

TEST_CASE("what is published for a job is what its sessions read") {
  auto writer = JobPageWriter::create(4, "trainer");
  REQUIRE(writer.ok());
  const auto reader = JobPageReader::open(writer->fd());
  REQUIRE(reader.ok());
  CHECK(reader->job() == "trainer");
  CHECK(reader->epoch() == 4);
  CHECK(reader->read().error().code == Errc::not_found);
  for (std::uint64_t mark = 100; mark < 500; mark += 100) {
    writer->publish(figures_of(mark));
    CHECK(is(reader->read().value(), mark));
  }
}

#ifdef APPORTION_FAULT_POINTS
TEST_CASE("F13: a broker killed before its nth store to a job page, for every n, leaves old or new figures") {
  bool published = false;
  for (int n = 1; !published; ++n) {
    REQUIRE(n < 100);
    auto writer = JobPageWriter::create(1, "trainer");
    REQUIRE(writer.ok());
    writer->publish(figures_of(100));
    const int code = run_child([&] {
      fault::arm("slot.before_store:kill:" + std::to_string(n));
      writer->publish(figures_of(200));
      return 0;
    });
    published = code == 0;
    const JobFigures read = JobPageReader::open(writer->fd())->read().value();
    REQUIRE((is(read, 100) || is(read, 200)));
    CHECK(is(read, 200) == published);
  }
}
#endif

TEST_CASE("F19 F22: a job page is sealed, and another kind of page or another major is refused") {
  auto writer = JobPageWriter::create(1, "trainer");
  REQUIRE(writer.ok());
  CHECK(PageMapping::map(writer->fd(), Bytes{kJobPageBytes}, PageMapping::Access::read_write).error().code ==
        Errc::denied);

  std::vector<std::byte> bytes(kJobPageBytes);
  REQUIRE(::pread(writer->fd(), bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  std::string expected;
  SECTION("major") {
    const std::uint32_t major = 2;
    std::memcpy(bytes.data() + offsetof(PageHeader, major), &major, sizeof major);
    expected = "the job page has layout 2.1, this program reads 1.1";
  }
  SECTION("kind") {
    std::memcpy(bytes.data(), &kLedgerMagic, sizeof kLedgerMagic);
    expected = "not a job page";
  }
  auto fd = make_memfd("apportion-test", Bytes{bytes.size()});
  REQUIRE(fd.ok());
  REQUIRE(::pwrite(fd->get(), bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  REQUIRE(seal_size(*fd).ok());
  const auto refused = JobPageReader::open(fd->get());
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code == Errc::protocol);
  CHECK(refused.error().message.find(expected) != std::string::npos);
}

TEST_CASE("a slab is found under its lease at its place, and nowhere and under nothing else") {
  auto writer = JobPageWriter::create(1, "sharer", 3);
  REQUIRE(writer.ok());
  const auto reader = JobPageReader::open(writer->fd());
  REQUIRE(reader.ok());
  CHECK(reader->slab(1, 7).error().code == Errc::not_found);
  writer->put_slab(1, 7, 4_MiB, handle_of(0xaa));
  const auto slab = reader->slab(1, 7);
  REQUIRE(slab.ok());
  CHECK(slab->bytes == 4_MiB);
  CHECK(slab->handle == handle_of(0xaa));
  CHECK(reader->slab(0, 7).error().code == Errc::not_found);
  CHECK(reader->slab(1, 8).error().code == Errc::not_found);
  CHECK(reader->slab(0, 0).error().code == Errc::not_found);  // an empty place is no slab of id 0
  CHECK(reader->slab(3, 7).error().message ==
        "slab 7 of job \"sharer\" cannot be opened: its place 3 is not among the 3 of the job page");
  writer->clear_slab(1);
  CHECK(reader->slab(1, 7).error().code == Errc::not_found);
  writer->put_slab(1, 8, 2_MiB, handle_of(0xbb));
  CHECK(reader->slab(1, 8)->handle == handle_of(0xbb));
}

TEST_CASE("a slab that is replaced while it is read is read whole or not found") {
  auto writer = JobPageWriter::create(1, "sharer", 1);
  REQUIRE(writer.ok());
  const auto reader = JobPageReader::open(writer->fd());
  REQUIRE(reader.ok());
  constexpr std::uint64_t kReads = 3'000'000;
  std::atomic<std::uint64_t> now{1};
  std::atomic<bool> enough{false};
  writer->put_slab(0, 1, Bytes{1}, handle_of(1));
  std::thread replacing([&] {
    for (std::uint64_t id = 2; !enough.load(std::memory_order_relaxed); ++id) {
      writer->clear_slab(0);
      writer->put_slab(0, id, Bytes{id}, handle_of(static_cast<std::uint8_t>(id)));
      now.store(id, std::memory_order_relaxed);
    }
  });
  std::uint64_t whole = 0;
  std::uint64_t mixed = 0;
  for (std::uint64_t read = 0; read < kReads; ++read) {
    // The one that is there, or the one being put.
    const std::uint64_t asked = now.load(std::memory_order_relaxed) + read % 2;
    const auto slab = reader->slab(0, asked);
    if (!slab.ok()) continue;
    ++whole;
    if (slab->bytes.value != asked || slab->handle != handle_of(static_cast<std::uint8_t>(asked))) ++mixed;
  }
  enough = true;
  replacing.join();
  CHECK(mixed == 0);
  CHECK(whole > 0);
}

#ifdef APPORTION_FAULT_POINTS
TEST_CASE("F13: a broker killed before its nth store of a slab, for every n, leaves all of it or nothing") {
  bool put = false;
  for (int n = 1; !put; ++n) {
    REQUIRE(n < 100);
    auto writer = JobPageWriter::create(1, "sharer", 1);
    REQUIRE(writer.ok());
    const int code = run_child([&] {
      fault::arm("slab_entry.before_store:kill:" + std::to_string(n));
      writer->put_slab(0, 7, 4_MiB, handle_of(0xaa));
      return 0;
    });
    put = code == 0;
    const auto slab = JobPageReader::open(writer->fd())->slab(0, 7);
    REQUIRE(slab.ok() == put);
    if (put) CHECK(slab->handle == handle_of(0xaa));
  }
}
#endif

TEST_CASE("F17: a slab table that does not lie within its page is refused; one of another version is none") {
  auto writer = JobPageWriter::create(1, "sharer", 3);
  REQUIRE(writer.ok());
  writer->put_slab(1, 7, 4_MiB, handle_of(0xaa));
  const auto field = [](std::size_t offset) { return sizeof(PageHeader) + offset; };
  const auto refused = [&](std::size_t at, const auto& value) {
    const auto opened = open_changed(*writer, at, &value, sizeof value);
    return !opened.ok() && opened.error().message.find("slab table") != std::string::npos;
  };
  const std::size_t offset = field(offsetof(JobPageHeader, slab_table_offset));
  CHECK(refused(field(offsetof(JobPageHeader, slab_count)), std::uint32_t{4}));
  CHECK(refused(offset, std::uint64_t{kJobPageBytes + 8}));
  CHECK(refused(offset, std::uint64_t{kJobPageBytes - 4}));
  CHECK(refused(offset, ~std::uint64_t{7}));
  const std::uint32_t newer = kSlabTableVersion + 1;
  const auto other =
      open_changed(*writer, field(offsetof(JobPageHeader, slab_table_version)), &newer, sizeof newer);
  REQUIRE(other.ok());
  CHECK(other->slab(1, 7).error().code == Errc::not_found);
}
