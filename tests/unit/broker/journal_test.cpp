#include "broker/journal.hpp"

#include "broker/journal_image.hpp"
#include "tests/support/catch.hpp"

using namespace apportion;

namespace {

struct Made {
  JournalShape shape;
  std::vector<std::byte> memory;
  Journal journal;
  Made()
      : shape{128_MiB, 32_MiB, 4, 4, 8, 2, {0x11, 0x22}},
        memory(shape.bytes()),
        journal(*Journal::format(memory, shape)) {}
};

}  // namespace

TEST_CASE("journal: a new one is empty, and its shape and device are read back") {
  Made made;
  const Result<JournalImage> image = read_journal(made.memory);
  REQUIRE(image.ok());
  CHECK(image->empty());
  CHECK(image->shape == made.shape);
  CHECK(image->epoch == 0);
}

TEST_CASE("journal: what is written is read back, field by field") {
  Made made;
  made.journal.set_epoch(7);
  made.journal.put_job(2, "trainer");
  JournalSession fields;
  fields.token.bytes = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
  fields.uid = 4'000'000'000U;
  fields.pid = 4'194'304;
  fields.start_time = ~std::uint64_t{0};
  fields.job_slot = 2;
  fields.reclaimable = true;
  const SessionId session = SessionId::of(3, 9);
  made.journal.put_session(session, fields);
  const ChunkId chunk = ChunkId::of(5, 1'000'000);
  made.journal.put_chunk(chunk, 48_MiB);
  made.journal.set_owner(chunk, {3, 4'000'000'001U});
  made.journal.set_chunk(chunk, ChunkState::held, session);

  const Result<JournalImage> image = read_journal(made.memory);
  REQUIRE(image.ok());
  CHECK(image->damaged.empty());
  CHECK(image->epoch == 7);
  REQUIRE(image->jobs.size() == 1);
  CHECK(image->jobs[0].name == "trainer");
  CHECK(image->jobs[0].slot == 2);
  REQUIRE(image->sessions.size() == 1);
  CHECK(image->sessions[0].id == session);
  CHECK(image->sessions[0].state == SessionPhase::attached);
  CHECK(image->sessions[0].fields == fields);
  REQUIRE(image->chunks.size() == 1);
  CHECK(image->chunks[0].id == chunk);
  CHECK(image->chunks[0].bytes == 48_MiB);
  CHECK(image->chunks[0].state == ChunkState::held);
  CHECK(image->chunks[0].session_slot == 3);
  CHECK(image->chunks[0].last_owner == JournalOwner{3, 4'000'000'001U});
}

TEST_CASE("journal: a slab is one from its first store to its last, and its slot's next use is not") {
  Made made;
  const auto read = [&] { return read_journal(made.memory)->chunks; };
  const ChunkId slab = ChunkId::of(5, 1);
  made.journal.put_chunk(slab, 48_MiB, true);
  REQUIRE(read().size() == 1);
  CHECK(read()[0].marks.slab);
  CHECK_FALSE(read()[0].session_slot);
  made.journal.set_chunk(slab, ChunkState::held, SessionId::of(3, 1), {.slab = true});
  CHECK(read()[0].marks.slab);
  CHECK(read()[0].session_slot == 3);
  made.journal.set_chunk(slab, ChunkState::vacant, std::nullopt);
  made.journal.put_chunk(ChunkId::of(5, 2), 32_MiB);
  REQUIRE(read().size() == 1);
  CHECK_FALSE(read()[0].marks.slab);
}

namespace {

struct Stores {
  Made* made;
  std::vector<std::vector<std::byte>> copies;
  static void at_store(void* context) {
    auto* stores = static_cast<Stores*>(context);
    stores->copies.push_back(stores->made->memory);
  }
};

}  // namespace

TEST_CASE("journal: a change of state is one 8-byte store") {
  Made made;
  const SessionId session = SessionId::of(1, 1);
  const ChunkId chunk = ChunkId::of(0, 1);
  made.journal.put_session(session, {});
  made.journal.put_chunk(chunk, 32_MiB);
  Stores stores{&made, {}};
  made.journal.observe(&Stores::at_store, &stores);
  made.journal.set_chunk(chunk, ChunkState::offered, session);
  made.journal.set_chunk(chunk, ChunkState::held, session);
  made.journal.set_session(session, SessionPhase::orphan);
  made.journal.set_owner(chunk, {0, 5});
  made.journal.set_epoch(3);
  CHECK(stores.copies.size() == 5);
}

TEST_CASE("journal: a record counts from its last store on, and is whole at each one") {
  Made made;
  Stores stores{&made, {}};
  made.journal.observe(&Stores::at_store, &stores);
  for (const std::uint64_t generation : {1, 2}) {  // a new slot, and one used before
    stores.copies.clear();
    made.journal.put_session(SessionId::of(1, generation), {});
    for (std::size_t i = 0; i < stores.copies.size(); ++i) {
      const Result<JournalImage> image = read_journal(stores.copies[i]);
      CHECK(image->damaged.empty());
      CHECK(image->sessions.size() == (i + 1 == stores.copies.size() ? 1 : 0));
    }
    stores.copies.clear();
    made.journal.put_chunk(ChunkId::of(2, generation), 32_MiB);
    for (std::size_t i = 0; i < stores.copies.size(); ++i) {
      const Result<JournalImage> image = read_journal(stores.copies[i]);
      CHECK(image->damaged.empty());
      CHECK(image->chunks.size() == (i + 1 == stores.copies.size() ? 1 : 0));
    }
    made.journal.set_chunk(ChunkId::of(2, generation), ChunkState::vacant, std::nullopt);
    made.journal.set_session(SessionId::of(1, generation), SessionPhase::vacant);
    CHECK(read_journal(made.memory)->empty());
  }
}

TEST_CASE("F17: any flipped bit of a record in use is noticed, and spoils that record alone") {
  Made made;
  made.journal.put_job(0, "a");
  made.journal.put_session(SessionId::of(0, 1), {});
  made.journal.put_chunk(ChunkId::of(0, 1), 32_MiB);
  made.journal.put_chunk(ChunkId::of(1, 1), 32_MiB);
  made.journal.set_chunk(ChunkId::of(1, 1), ChunkState::held, SessionId::of(0, 1));
  const auto tables = journal_layout::tables(4, 4, 8, 2);
  std::size_t unnoticed = 0;
  for (std::size_t word = tables.chunks + 4; word < tables.chunks + 8; ++word) {
    for (unsigned bit = 0; bit < 64; ++bit) {
      std::vector<std::byte> bad = made.memory;
      bad[word * 8 + bit / 8] ^= std::byte{1} << (bit % 8);
      const Result<JournalImage> image = read_journal(bad);
      REQUIRE(image.ok());
      if (image->damaged.size() != 1 || image->damaged[0].slot != 1 || image->chunks.size() != 1) ++unnoticed;
    }
  }
  CHECK(unnoticed == 0);
}

TEST_CASE("journal: too small a memory is refused") {
  const JournalShape shape{128_MiB, 32_MiB, 4, 4, 8, 2, {}};
  std::vector<std::byte> memory(shape.bytes() - 8);
  CHECK(Journal::format(memory, shape).error().code == Errc::invalid);
}
