#include "shm/job_page.hpp"

#include <cstring>

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
    expected = "the job page has layout 2.0, this program reads 1.0";
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
