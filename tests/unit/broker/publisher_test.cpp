#include "broker/publisher.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>

#include "tests/unit/broker/shell_support.hpp"

using namespace apportion;
using namespace apportion::testing;

namespace {

std::size_t open_fds() {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                                                std::filesystem::directory_iterator()));
}

struct Bench {
  Loop loop;
  LedgerSnapshot figures;
  std::unique_ptr<Publisher> publisher = make();

  std::unique_ptr<Publisher> make() {
    figures.jobs.resize(1);
    Result<std::unique_ptr<Publisher>> made =
        Publisher::create(loop, {1, "GPU-1", "device", 8_GiB, {"a"}, {3}}, [this] { return figures; });
    REQUIRE(made.ok());
    return *std::move(made);
  }
  void session(std::uint64_t id, Bytes charged, Bytes in_transit) {
    SessionRecord record;
    record.id = id;
    record.charged = charged.value;
    record.in_transit = in_transit.value;
    figures.sessions.push_back(record);
  }
  // What the client of session `id` says is idle.
  void claim_idle(std::uint64_t id, std::uint64_t idle) {
    Result<std::vector<Fd>> pages = publisher->pages_for({id}, {0});
    REQUIRE(pages.ok());
    Result<ReportPage> page = ReportPage::open((*pages)[2].get());
    REQUIRE(page.ok());
    page->write_one(&ReportFigures::bytes_idle, idle);
  }
};

}  // namespace

TEST_CASE("publisher: a burst of changes is few publications, and the last one is there") {
  Bench bench;
  Result<std::vector<Fd>> pages = bench.publisher->pages_for({1}, {0});
  REQUIRE(pages.ok());
  const Result<LedgerReader> reader = LedgerReader::open((*pages)[0].get());
  REQUIRE(reader.ok());
  for (std::uint64_t i = 1; i <= 1000; ++i) {
    bench.figures.totals.charged = i;
    bench.publisher->ledger_changed();
  }
  CHECK(bench.publisher->generation() == 1);
  CHECK(turn_until(bench.loop, [&] { return reader->read()->totals.charged == 1000; }));
  CHECK(bench.publisher->generation() == 2);
  turn_all(bench.loop);
  CHECK(bench.publisher->generation() == 2);  // at rest nothing is published
}

TEST_CASE("F23: publisher: what a client says is idle is at most what it is charged and has") {
  Bench bench;
  bench.session(1, 64_MiB, 0_B);
  bench.session(2, 64_MiB, 32_MiB);
  bench.session(3, 32_MiB, 64_MiB);  // cannot be; must not wrap either
  for (const std::uint64_t id : {1, 2, 3})
    bench.claim_idle(id, ~std::uint64_t{0});
  const LedgerSnapshot snapshot = bench.publisher->snapshot();
  CHECK(snapshot.sessions[0].idle == (64_MiB).value);
  CHECK(snapshot.sessions[1].idle == (32_MiB).value);
  CHECK(snapshot.sessions[2].idle == 0);
  CHECK(snapshot.jobs[0].idle == (96_MiB).value);
}

TEST_CASE("F30: publisher: out of descriptors a session gets an error, and nothing of it is left") {
  Bench bench;
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  const std::size_t open = open_fds();
  for (std::size_t room = 0; room < 4; ++room) {
    std::vector<Fd> fill;
    const Fd probe(::dup(0));
    rlimit low = before;
    low.rlim_cur = static_cast<rlim_t>(probe.get()) + 1 + room;
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &low) == 0);
    const bool ok = bench.publisher->pages_for({7}, {0}).ok();
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
    INFO(room);
    CHECK_FALSE(ok);
  }
  CHECK(open_fds() == open);
  CHECK(bench.publisher->pages_for({7}, {0}).ok());
  bench.publisher->remove_session({7});
  CHECK(open_fds() == open);
}

TEST_CASE("publisher: a slab has a place of its own until it is cleared, and none when its session is gone") {
  Bench bench;
  Result<std::vector<Fd>> pages = bench.publisher->pages_for({7}, {0});
  REQUIRE(pages.ok());
  const Result<JobPageReader> reader = JobPageReader::open((*pages)[1].get());
  REQUIRE(reader.ok());
  const auto put = [&](std::uint64_t session, std::uint64_t id) {
    IpcHandle handle{};
    handle[0] = static_cast<std::uint8_t>(id);
    return bench.publisher->put_slab({0}, {session}, {id}, Bytes{id}, handle);
  };
  const auto mark = [&](std::uint32_t place, std::uint64_t id) {
    const Result<SlabHandle> slab = reader->slab(place, id);
    return slab.ok() && slab->bytes.value == id ? slab->handle[0] : 0;
  };
  CHECK(put(7, 11) == 0);
  CHECK(put(8, 12) == 1);
  CHECK(put(7, 13) == 2);
  CHECK(mark(0, 11) == 11);
  CHECK(mark(1, 12) == 12);
  CHECK(mark(2, 13) == 13);
  bench.publisher->clear_slab({12});
  bench.publisher->clear_slab({12});
  CHECK(mark(1, 12) == 0);
  CHECK(put(8, 14) == 1);  // the lowest that is empty
  bench.publisher->remove_session({7});
  CHECK(mark(0, 11) == 0);
  CHECK(mark(2, 13) == 0);
  CHECK(mark(1, 14) == 14);
  CHECK(put(8, 15) == 0);
}
