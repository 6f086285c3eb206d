#include "shm/ledger.hpp"

#include <cstring>

#include "sample_messages.hpp"
#include "shm/fault_point.hpp"
#include "shm/memfd.hpp"
#include "support.hpp"
#include "tests/support/catch.hpp"

using namespace apportion;
using namespace apportion::testing;

namespace {

LedgerWriter make_writer(std::uint32_t jobs = 8, std::uint32_t sessions = 8) {
  auto writer = LedgerWriter::create(3, {"GPU-1", "Simulated device"}, jobs, sessions);
  REQUIRE(writer.ok());
  return std::move(*writer);
}

LedgerSnapshot snapshot_of(std::uint64_t mark, std::size_t jobs = 2, std::size_t sessions = 3) {
  LedgerSnapshot snapshot;
  snapshot.totals.pool = mark;
  snapshot.totals.helper_context = mark;
  snapshot.jobs.resize(jobs, sample_job());
  for (JobRecord& job : snapshot.jobs)
    job.charged = mark;
  snapshot.sessions.resize(sessions, sample_session());
  for (SessionRecord& session : snapshot.sessions)
    session.charged = mark;
  return snapshot;
}

// The mark of a snapshot if every record carries the same; 0 for a mixture.
std::uint64_t mark_of(const LedgerSnapshot& snapshot) {
  const std::uint64_t mark = snapshot.totals.pool;
  if (snapshot.totals.helper_context != mark) return 0;
  for (const JobRecord& job : snapshot.jobs) {
    if (job.charged != mark) return 0;
  }
  for (const SessionRecord& session : snapshot.sessions) {
    if (session.charged != mark) return 0;
  }
  return mark;
}

// A memfd with the same bytes that the caller may change before it is sealed.
struct Copy {
  explicit Copy(int memfd) {
    const Bytes size = size_of(memfd).value();
    bytes.resize(size.value);
    REQUIRE(::pread(memfd, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  }
  template <typename T>
  void set(std::size_t offset, T value) {
    std::memcpy(bytes.data() + offset, &value, sizeof value);
  }
  [[nodiscard]] Result<LedgerReader> open() const {
    auto fd = make_memfd("apportion-test", Bytes{bytes.size()});
    REQUIRE(fd.ok());
    REQUIRE(::pwrite(fd->get(), bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
    REQUIRE(seal_size(*fd).ok());
    return LedgerReader::open(fd->get());
  }
  std::vector<std::byte> bytes;
};

constexpr std::size_t kLedgerHeader = sizeof(PageHeader);

}  // namespace

TEST_CASE("what the broker publishes is what a client reads, generation after generation") {
  LedgerWriter writer = make_writer();
  const auto reader = LedgerReader::open(writer.fd());
  REQUIRE(reader.ok());
  CHECK(reader->epoch() == 3);
  CHECK(reader->device_uuid() == "GPU-1");
  CHECK(reader->device_name() == "Simulated device");
  CHECK(reader->read().error().code == Errc::not_found);

  for (std::uint64_t generation = 1; generation <= 5; ++generation) {
    const LedgerSnapshot published = snapshot_of(100 + generation, generation % 3, generation);
    writer.publish(published);
    const auto read = reader->read();
    REQUIRE(read.ok());
    CHECK(read->generation == generation);
    CHECK(read->epoch == 3);
    CHECK(std::memcmp(&read->totals, &published.totals, sizeof read->totals) == 0);
    REQUIRE(read->jobs.size() == published.jobs.size());
    REQUIRE(read->sessions.size() == published.sessions.size());
    for (std::size_t i = 0; i < read->jobs.size(); ++i) {
      CHECK(std::memcmp(&read->jobs[i], &published.jobs[i], sizeof(JobRecord)) == 0);
    }
    for (std::size_t i = 0; i < read->sessions.size(); ++i) {
      CHECK(std::memcmp(&read->sessions[i], &published.sessions[i], sizeof(SessionRecord)) == 0);
    }
  }
}

TEST_CASE("what does not fit is left out and counted") {
  LedgerWriter writer = make_writer(1, 2);
  writer.publish(snapshot_of(7, 3, 5));
  const auto read = LedgerReader::open(writer.fd())->read();
  REQUIRE(read.ok());
  CHECK(read->jobs.size() == 1);
  CHECK(read->sessions.size() == 2);
  CHECK(read->jobs_total == 3);
  CHECK(read->sessions_total == 5);
}

TEST_CASE("F22: the ledger's fd is of no use for writing") {
  LedgerWriter writer = make_writer();
  CHECK(PageMapping::map(writer.fd(), size_of(writer.fd()).value(), PageMapping::Access::read_write)
            .error()
            .code == Errc::denied);
  CHECK(::pwrite(writer.fd(), "x", 1, 0) == -1);
}

#ifdef APPORTION_FAULT_POINTS
TEST_CASE("F13: a broker killed before its nth store, for every n, leaves the old or the new snapshot") {
  bool published = false;
  int old_seen = 0;
  int new_seen = 0;
  int n = 1;
  for (; !published; ++n) {
    REQUIRE(n < 1000);
    CAPTURE(n);
    LedgerWriter writer = make_writer();
    const auto reader = LedgerReader::open(writer.fd());
    REQUIRE(reader.ok());
    writer.publish(snapshot_of(1));
    writer.publish(snapshot_of(2));
    const int code = run_child([&] {
      fault::arm("slot.before_store:kill:" + std::to_string(n));
      writer.publish(snapshot_of(3, 1, 1));
      return 0;
    });
    published = code == 0;
    REQUIRE((published || code == -SIGKILL));
    const auto read = reader->read();
    REQUIRE(read.ok());
    const std::uint64_t mark = mark_of(*read);
    REQUIRE((mark == 2 || mark == 3));
    ++(mark == 2 ? old_seen : new_seen);
    if (published) CHECK(mark == 3);
  }
  CHECK(old_seen > 10);  // the loop did kill in the middle
  CHECK(new_seen >= 1);
}
#endif

TEST_CASE("F17: a damaged slot makes the reader use the other, and two make it say so") {
  LedgerWriter writer = make_writer();
  writer.publish(snapshot_of(1));
  writer.publish(snapshot_of(2));
  Copy copy(writer.fd());
  SlotPairHeader pair;
  std::memcpy(static_cast<void*>(&pair), copy.bytes.data() + kLedgerHeader + offsetof(LedgerHeader, slots),
              sizeof pair);
  copy.bytes[pair.offset[0] + 100] ^= std::byte{4};
  const auto other = copy.open()->read();
  REQUIRE(other.ok());
  CHECK(mark_of(*other) == 1);
  copy.bytes[pair.offset[1] + 100] ^= std::byte{4};
  CHECK(copy.open()->read().error().code == Errc::protocol);
}

TEST_CASE("F19: a ledger of another major is refused by name, one of a newer minor is read") {
  LedgerWriter writer = make_writer();
  writer.publish(snapshot_of(5));
  Copy copy(writer.fd());
  copy.set(offsetof(PageHeader, minor), std::uint32_t{kLedgerMinor + 1});
  REQUIRE(copy.open().ok());
  CHECK(mark_of(copy.open()->read().value()) == 5);
  copy.set(offsetof(PageHeader, major), std::uint32_t{kLedgerMajor + 1});
  const auto refused = copy.open();
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code == Errc::protocol);
  CHECK(refused.error().message.find("the ledger has layout 2.1, this program reads 1.0") !=
        std::string::npos);
}

TEST_CASE("F19: longer records of a newer minor are read, their additions left out") {
  // A ledger as a later version would write it: one more word per record.
  constexpr std::size_t kMore = 8;
  const std::size_t payload =
      sizeof(LedgerCounts) + sizeof(TotalsRecord) + sizeof(JobRecord) + 2 * sizeof(SessionRecord) + 4 * kMore;
  LedgerWriter writer = make_writer();
  Copy copy(writer.fd());
  auto* header = reinterpret_cast<LedgerHeader*>(copy.bytes.data() + kLedgerHeader);
  header->totals_bytes += kMore;
  header->job_stride += kMore;
  header->session_stride += kMore;
  SlotWriter later(copy.bytes.data(), 256, payload / 8, &header->slots);
  std::vector<std::byte> bytes(payload, std::byte{0x5a});
  const LedgerSnapshot snapshot = snapshot_of(6, 1, 2);
  const LedgerCounts counts{1, 2, 1, 2};
  std::byte* at = bytes.data();
  std::memcpy(at, &counts, sizeof counts);
  at += sizeof counts;
  std::memcpy(at, &snapshot.totals, sizeof(TotalsRecord));
  at += sizeof(TotalsRecord) + kMore;
  std::memcpy(at, snapshot.jobs.data(), sizeof(JobRecord));
  at += sizeof(JobRecord) + kMore;
  for (const SessionRecord& session : snapshot.sessions) {
    std::memcpy(at, &session, sizeof session);
    at += sizeof session + kMore;
  }
  later.publish({reinterpret_cast<const std::uint64_t*>(bytes.data()), payload / 8});
  copy.set(offsetof(PageHeader, minor), std::uint32_t{kLedgerMinor + 1});
  const auto read = copy.open()->read();
  REQUIRE(read.ok());
  CHECK(mark_of(*read) == 6);
  CHECK(read->sessions[1].label.view() == "python");
}

TEST_CASE("pages that are no ledger, or lie about their size, are refused") {
  LedgerWriter writer = make_writer();
  Copy copy(writer.fd());
  SECTION("magic") {
    copy.set(0, kJobPageMagic);
  }
  SECTION("page size") {
    copy.set(offsetof(PageHeader, page_bytes), copy.bytes.size() + 4096);
  }
  SECTION("header size") {
    copy.set(offsetof(PageHeader, header_bytes), ~std::uint64_t{0});
  }
  SECTION("cut") {
    copy.bytes.resize(64);
  }
  SECTION("stride 0") {
    copy.set(kLedgerHeader + offsetof(LedgerHeader, job_stride), std::uint32_t{0});
  }
  SECTION("stride 12") {
    copy.set(kLedgerHeader + offsetof(LedgerHeader, session_stride), std::uint32_t{12});
  }
  CHECK(copy.open().error().code == Errc::protocol);
}

TEST_CASE("a slot whose counts do not fit its length is refused, checksum or not") {
  LedgerWriter writer = make_writer();
  Copy copy(writer.fd());
  auto* header = reinterpret_cast<LedgerHeader*>(copy.bytes.data() + kLedgerHeader);
  SlotWriter liar(copy.bytes.data(), 256, 100, &header->slots);
  std::vector<std::uint64_t> payload(20);
  const LedgerCounts counts{~std::uint32_t{0}, ~std::uint32_t{0}, 0, 0};
  std::memcpy(payload.data(), &counts, sizeof counts);
  liar.publish(payload);
  CHECK(copy.open()->read().error().code == Errc::protocol);
}

TEST_CASE("an unsealed ledger is refused: it could be cut off under its reader") {
  auto fd = make_memfd("apportion-test", Bytes{4096});
  REQUIRE(fd.ok());
  CHECK(LedgerReader::open(fd->get()).error().code == Errc::protocol);
}

TEST_CASE("a reader keeps its snapshot when writer and fd are gone") {
  auto writer = std::make_unique<LedgerWriter>(make_writer());
  writer->publish(snapshot_of(9));
  const auto reader = LedgerReader::open(writer->fd());
  REQUIRE(reader.ok());
  writer.reset();
  CHECK(mark_of(reader->read().value()) == 9);
}

TEST_CASE("readers in other processes get whole snapshots while the broker publishes") {
  LedgerWriter writer = make_writer();
  writer.publish(snapshot_of(1));
  std::vector<pid_t> readers;
  auto pair = channel::make_pair();
  REQUIRE(pair.ok());
  for (int i = 0; i < 2; ++i) {
    readers.push_back(start_child([&] {
      pair->first.reset();  // so that the parent's end is the only one
      const auto reader = LedgerReader::open(writer.fd());
      if (!reader.ok()) return 1;
      channel::Datagram datagram;
      for (long reads = 0;; ++reads) {
        const auto read = reader->read();
        if (!read.ok() && read.error().code != Errc::busy) return 2;
        if (read.ok() && mark_of(*read) == 0) return 3;
        if (reads < 500) continue;
        const auto stop = channel::try_receive(pair->second.get(), datagram);
        if (!stop.ok() || *stop) return 0;
      }
    }));
  }
  for (std::uint64_t mark = 2; mark < 20'000; ++mark)
    writer.publish(snapshot_of(mark, mark % 5, mark % 7));
  pair->first.reset();
  for (const pid_t pid : readers)
    CHECK(wait_for_child(pid) == 0);
}
