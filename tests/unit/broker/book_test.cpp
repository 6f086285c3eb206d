#include "broker/book.hpp"

#include "tests/support/catch.hpp"

using namespace apportion;

namespace {

struct Library {
  JournalShape shape{128_MiB, 32_MiB, 4, 4, 8, 1, {}};
  std::vector<std::byte> memory = std::vector<std::byte>(shape.bytes());
  Journal journal = *Journal::format(memory, shape);
  Book book{128_MiB, 32_MiB, {"a", "b"}, journal};

  SessionId open(std::uint32_t job, std::uint32_t uid = 1) {
    JournalSession fields;
    fields.uid = uid;
    return *book.open({job}, fields, "");
  }
  ChunkId make(Bytes bytes = 32_MiB) {
    const ChunkId id = book.begin_make(bytes);
    book.made(id);
    return id;
  }
};

}  // namespace

TEST_CASE("charge: gives back exactly what it took, once, on every path") {
  Account account;
  {
    Charge charge(account, 5_B);
    Charge moved(std::move(charge));
    CHECK(account.charged() == 5_B);
    CHECK_FALSE(static_cast<bool>(charge));  // NOLINT: a moved-from charge holds nothing
    Charge other(account, 7_B);
    CHECK(account.charged() == 12_B);
    other = std::move(moved);
    CHECK(account.charged() == 5_B);
    other.give_back();
    other.give_back();
    CHECK(account.charged() == 0_B);
    Charge last(account, 3_B);
  }
  CHECK(account.charged() == 0_B);
}

TEST_CASE("book: P = sum(u) + X + F through the whole life of a chunk") {
  Library library;
  Book& book = library.book;
  const auto expect = [&](Bytes charged, Bytes transit, Bytes free) {
    book.check();
    CHECK(book.charged() == charged);
    CHECK(book.in_transit() == transit);
    CHECK(book.free() == free);
  };
  expect(0_B, 0_B, 128_MiB);
  const ChunkId id = book.begin_make(32_MiB);
  expect(0_B, 32_MiB, 96_MiB);
  book.made(id);
  expect(0_B, 0_B, 128_MiB);
  const SessionId session = library.open(0);
  book.offer(id, session, {1});
  expect(32_MiB, 0_B, 96_MiB);
  book.hold(id);
  book.orphan(session);
  CHECK(book.find(id)->state == ChunkState::orphan);
  expect(32_MiB, 0_B, 96_MiB);
  book.attach_again(session);
  book.hold(id);
  book.begin_return(id);
  expect(32_MiB, 0_B, 96_MiB);
  book.put_back(id, true);
  expect(0_B, 0_B, 128_MiB);
  CHECK(book.find(id)->past == Past{Owner{{0}, 1}, false, true});
  book.begin_unmake(id);
  expect(0_B, 32_MiB, 96_MiB);
  book.unmade(id);
  expect(0_B, 0_B, 128_MiB);
  CHECK(book.find(id) == nullptr);
}

TEST_CASE("book: a strict return is the job's own until it is loose") {
  Library library;
  Book& book = library.book;
  const ChunkId id = library.make();
  book.offer(id, library.open(1), {1});
  book.hold(id);
  book.begin_return(id);
  book.begin_unmake(id);
  CHECK(book.job({1}).account.charged() == 32_MiB);
  CHECK(book.in_transit() == 0_B);
  book.unmade(id);
  CHECK(book.job({1}).account.charged() == 0_B);
  book.check();
}

TEST_CASE("book: an ended session is remembered until its last zombie has gone") {
  Library library;
  Book& book = library.book;
  const ChunkId id = library.make();
  const SessionId session = library.open(0);
  book.offer(id, session, {1});
  book.bury(id);
  book.end(session);
  book.check();
  REQUIRE(book.find(session) != nullptr);
  CHECK(book.job({0}).sessions == 0);
  CHECK(book.job({0}).account.charged() == 32_MiB);
  book.settled(id);
  CHECK(book.find(session) == nullptr);
  CHECK(book.free() == 128_MiB);
  book.check();
}

TEST_CASE("book: a free chunk is picked by its past, the lowest rank first, or none") {
  Library library;
  Book& book = library.book;
  const ChunkId one = library.make();
  const ChunkId two = library.make();
  const auto used_by = [&](ChunkId id, SessionId session) {
    book.offer(id, session, {1});
    book.begin_return(id);
    book.put_back(id, false);
  };
  used_by(one, library.open(0, 1));
  used_by(two, library.open(0, 2));
  const ChunkId fresh = library.make();
  const auto uid_of = [](const Past& past) { return past.owner ? static_cast<int>(past.owner->uid) : 9; };
  CHECK(book.pick_free(uid_of) == one);
  CHECK(book.pick_free([&](const Past& past) { return -uid_of(past); }) == fresh);
  CHECK(book.pick_free(
            [&](const Past& past) { return uid_of(past) == 2 ? std::optional(0) : std::nullopt; }) == two);
  CHECK_FALSE(book.pick_free([](const Past&) { return std::optional<int>(); }).has_value());
}

TEST_CASE("book: what is overwritten for a session is charged to it, what is for nobody is in transit") {
  Library library;
  Book& book = library.book;
  const ChunkId id = library.make();
  const SessionId session = library.open(0);
  const auto expect = [&](Bytes charged, Bytes transit, Bytes free) {
    book.check();
    CHECK(book.charged() == charged);
    CHECK(book.in_transit() == transit);
    CHECK(book.free() == free);
  };
  book.begin_scrub_for(id, session, {1});
  expect(32_MiB, 0_B, 96_MiB);
  book.scrub_failed(id);
  expect(0_B, 0_B, 128_MiB);
  CHECK_FALSE(book.find(id)->past.clean);
  book.begin_scrub_for(id, session, {1});
  book.leave_scrub_alone(id);
  expect(0_B, 32_MiB, 96_MiB);
  book.scrubbed_free(id);
  expect(0_B, 0_B, 128_MiB);
  CHECK(book.find(id)->past.clean);
  book.offer(id, session, {1});
  book.roll_back(id);
  CHECK(book.find(id)->past.clean);  // nobody has seen it
  book.offer(id, session, {1});
  book.hold(id);
  CHECK_FALSE(book.find(id)->past.clean);
  book.begin_return(id);
  book.begin_scrub(id);  // a strict return: its job's own until it is loose
  expect(32_MiB, 0_B, 96_MiB);
  book.begin_unmake(id);
  book.unmade(id);
  expect(0_B, 0_B, 128_MiB);
}

TEST_CASE("book: no more sessions than slots") {
  Library library;
  for (int i = 0; i < 4; ++i)
    CHECK(library.book.open({0}, {}, "").has_value());
  CHECK_FALSE(library.book.open({0}, {}, "").has_value());
  library.book.check();
}
