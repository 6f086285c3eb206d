#include "shm/report_page.hpp"

#include <cstring>
#include <thread>

#include "sample_messages.hpp"
#include "shm/memfd.hpp"
#include "support.hpp"
#include "tests/support/catch.hpp"

using namespace apportion;
using namespace apportion::testing;

namespace {

struct BothEnds {
  ReportPage broker;
  ReportPage client;
};

BothEnds make_ends() {
  auto broker = ReportPage::create(2, 77);
  REQUIRE(broker.ok());
  auto client = ReportPage::open(broker->fd());
  REQUIRE(client.ok());
  return {std::move(*broker), std::move(*client)};
}

void scribble(const ReportPage& page, std::uint64_t value) {
  auto mapping = PageMapping::map(page.fd(), Bytes{kReportPageBytes}, PageMapping::Access::read_write);
  REQUIRE(mapping.ok());
  auto* words = static_cast<std::uint64_t*>(mapping->data());
  for (std::size_t i = 0; i < kReportPageBytes / 8; ++i)
    words[i] = value;
}

}  // namespace

TEST_CASE("what a client writes is what the broker reads, all at once or one figure") {
  BothEnds ends = make_ends();
  CHECK(ends.client.session_id() == 77);
  const ReportFigures figures = sample_figures();
  ends.client.write(figures);
  ReportFigures read = ends.broker.read_clamped(1_GiB);
  CHECK(std::memcmp(&read, &figures, sizeof read) == 0);
  ends.client.write_one(&ReportFigures::hits_grown, 1234);
  read = ends.broker.read_clamped(1_GiB);
  CHECK(read.hits_grown == 1234);
  CHECK(read.hits_spare == figures.hits_spare);
}

TEST_CASE("F23: whatever a client scribbles, no byte figure is above the device and no share above one") {
  BothEnds ends = make_ends();
  scribble(ends.broker, ~std::uint64_t{0});
  const ReportFigures read = ends.broker.read_clamped(8_GiB);
  for (const std::uint64_t bytes :
       {read.bytes_in_use, read.bytes_cached, read.bytes_reserved, read.bytes_limit, read.peak_bytes_in_use,
        read.peak_bytes_reserved, read.largest_alloc_size, read.largest_free_block_bytes, read.pool_bytes,
        read.peak_pool_bytes, read.bytes_idle}) {
    CHECK(bytes == (8_GiB).value);
  }
  CHECK(read.fragmentation_ppm == 1'000'000);
  CHECK(ends.broker.unspent_credit(5_MiB) == 5_MiB);
}

TEST_CASE("F23: scribbling the page's header does not move the broker's reads") {
  BothEnds ends = make_ends();
  for (const std::uint64_t value : {std::uint64_t{0}, ~std::uint64_t{0}, std::uint64_t{1} << 62}) {
    scribble(ends.broker, value);
    CHECK(ends.broker.read_clamped(8_GiB).bytes_in_use <= (8_GiB).value);
    ends.broker.add_credit(1_MiB);  // does not wrap
    CHECK(ends.broker.unspent_credit(8_GiB) <= 8_GiB);
  }
}

TEST_CASE("F22: a client cannot take its report page away, nor freeze it") {
  BothEnds ends = make_ends();
  CHECK(::ftruncate(ends.broker.fd(), 0) == -1);
  CHECK(::ftruncate(ends.broker.fd(), 1 << 20) == -1);
  CHECK(::fcntl(ends.broker.fd(), F_ADD_SEALS, F_SEAL_WRITE) == -1);
}

TEST_CASE("credit is spent whole or not at all, and recalled as far as it is there") {
  BothEnds ends = make_ends();
  ends.broker.add_credit(10_MiB);
  CHECK(ends.client.take_credit(4_MiB));
  CHECK_FALSE(ends.client.take_credit(7_MiB));
  CHECK(ends.client.unspent_credit(1_GiB) == 6_MiB);
  CHECK(ends.broker.take_credit_up_to(8_MiB) == 6_MiB);
  CHECK(ends.broker.take_credit_up_to(8_MiB) == 0_B);
  ends.broker.add_credit({~std::uint64_t{0}});
  ends.broker.add_credit(1_B);  // saturates
  CHECK(ends.client.unspent_credit({~std::uint64_t{0}}).value == ~std::uint64_t{0});
}

TEST_CASE("credit is neither lost nor made while both sides take it at once") {
  BothEnds ends = make_ends();
  constexpr std::uint64_t kTotal = 100'000;
  ends.broker.add_credit({kTotal});
  std::uint64_t spent = 0;
  std::uint64_t recalled = 0;
  std::thread client([&] {
    while (ends.client.take_credit({3}))
      spent += 3;
  });
  std::thread broker([&] {
    for (Bytes got{1}; got.value != 0; recalled += got.value)
      got = ends.broker.take_credit_up_to({5});
  });
  client.join();
  broker.join();
  CHECK(spent + recalled + ends.broker.unspent_credit({kTotal}).value == kTotal);
}

TEST_CASE("F19: a report page of another kind or major, too short or unsealed is refused") {
  BothEnds ends = make_ends();
  std::vector<std::byte> bytes(kReportPageBytes);
  REQUIRE(::pread(ends.broker.fd(), bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  bool sealed = true;
  SECTION("kind") {
    std::memcpy(bytes.data(), &kJobPageMagic, 8);
  }
  SECTION("major") {
    bytes[offsetof(PageHeader, major)] = std::byte{2};
  }
  SECTION("short") {
    bytes.resize(128);
  }
  SECTION("unsealed") {
    sealed = false;
  }
  auto fd = make_memfd("apportion-test", Bytes{bytes.size()});
  REQUIRE(fd.ok());
  REQUIRE(::pwrite(fd->get(), bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  if (sealed) REQUIRE(seal_size(*fd).ok());
  CHECK(ReportPage::open(fd->get()).error().code == Errc::protocol);
}
