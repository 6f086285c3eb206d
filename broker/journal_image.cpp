#include "broker/journal_image.hpp"

#include <cstring>

namespace apportion {

namespace layout = journal_layout;

namespace {

class Reader {
 public:
  Reader(std::span<const std::byte> memory, JournalImage& image)
      : memory_(memory),
        image_(image),
        tables_(layout::tables(image.shape.job_slots, image.shape.session_slots, image.shape.chunk_slots,
                               image.shape.credit_slots)) {}

  void read_all() {
    read_epoch();
    for (std::uint32_t slot = 0; slot < image_.shape.job_slots; ++slot)
      read_job(slot);
    for (std::uint32_t slot = 0; slot < image_.shape.session_slots; ++slot)
      read_session(slot);
    for (std::uint32_t slot = 0; slot < image_.shape.chunk_slots; ++slot) {
      read_lease(tables_.chunks, slot, JournalImage::Damage::Table::chunks, image_.chunks);
    }
    for (std::uint32_t slot = 0; slot < image_.shape.credit_slots; ++slot) {
      read_lease(tables_.credits, slot, JournalImage::Damage::Table::credits, image_.credits);
    }
  }

 private:
  [[nodiscard]] std::uint64_t word(std::size_t place) const {
    std::uint64_t value = 0;
    std::memcpy(&value, memory_.data() + place * sizeof value, sizeof value);
    return value;
  }
  // Whole 64-byte lines of zeros are the common case: most of the tables was never used.
  [[nodiscard]] bool untouched(std::size_t record, std::size_t words) const {
    for (std::size_t i = 0; i < words; ++i) {
      if (word(record + i) != 0) return false;
    }
    return true;
  }
  void damaged(JournalImage::Damage::Table table, std::uint32_t slot) {
    image_.damaged.push_back({table, slot});
  }

  void read_epoch() {
    const std::uint64_t value = word(layout::kEpochWord);
    if (value == 0) return;
    if (!layout::sealed_well(value, layout::kEpochWord))
      return damaged(JournalImage::Damage::Table::header, 0);
    image_.epoch = layout::payload(value);
  }

  void read_job(std::uint32_t slot) {
    const std::size_t record = tables_.jobs + slot * layout::kJobWords;
    const std::uint64_t state = word(record + layout::kJobState);
    if (state == 0) return;  // never committed
    const std::uint64_t length = word(record + layout::kJobLength);
    std::uint64_t salt = layout::fold(0, {length});
    std::array<char, layout::kJobNameBytes> text{};
    for (std::size_t i = 0; i < text.size() / 8; ++i) {
      const std::uint64_t part = word(record + layout::kJobName + i);
      salt = layout::fold(salt, {part});
      std::memcpy(text.data() + 8 * i, &part, sizeof part);
    }
    if (!layout::sealed_well(state, record + layout::kJobState, salt) || length >= text.size()) {
      return damaged(JournalImage::Damage::Table::jobs, slot);
    }
    image_.jobs.push_back({slot, std::string(text.data(), length)});
  }

  void read_session(std::uint32_t slot) {
    const std::size_t record = tables_.sessions + slot * layout::kSessionWords;
    const std::uint64_t state = word(record + layout::kSessionState);
    const std::size_t place = record + layout::kSessionState;
    if (state == 0 || state == layout::seal(0, place))
      return;  // fields of a vacant record may be half written
    std::uint64_t salt = 0;
    for (std::size_t i = layout::kSessionGeneration; i <= layout::kSessionJob; ++i) {
      salt = layout::fold(salt, {word(record + i)});
    }
    const std::uint64_t generation = word(record + layout::kSessionGeneration);
    if (!layout::sealed_well(state, place, salt) ||
        !layout::sealed_well(generation, record + layout::kSessionGeneration) ||
        layout::payload(state) > static_cast<std::uint64_t>(SessionPhase::ended)) {
      return damaged(JournalImage::Damage::Table::sessions, slot);
    }
    JournalImage::Session session;
    session.id = SessionId::of(slot, layout::payload(generation));
    session.state = static_cast<SessionPhase>(layout::payload(state));
    const std::array<std::uint64_t, 2> token{word(record + layout::kSessionToken),
                                             word(record + layout::kSessionToken + 1)};
    std::memcpy(session.fields.token.bytes.data(), token.data(), sizeof token);
    const std::uint64_t process = word(record + layout::kSessionProcess);
    session.fields.uid = static_cast<std::uint32_t>(process >> 32);
    session.fields.pid = static_cast<std::int32_t>(process & 0xffffffffU);
    session.fields.start_time = word(record + layout::kSessionStart);
    const std::uint64_t job = word(record + layout::kSessionJob);
    session.fields.job_slot = static_cast<std::uint32_t>(job & 0xffffffffU);
    session.fields.reclaimable = (job >> 32) != 0;
    image_.sessions.push_back(session);
  }

  void read_lease(std::size_t table, std::uint32_t slot, JournalImage::Damage::Table which,
                  std::vector<JournalImage::Lease>& out) {
    const std::size_t record = table + slot * layout::kLeaseWords;
    const std::uint64_t state = word(record + layout::kLeaseState);
    if (state == 0 && untouched(record, layout::kLeaseWords - 1)) return;
    // Each field is one store, so even a record cut off half way has only words that check.
    for (const std::size_t field : {layout::kLeaseGeneration, layout::kLeaseBytes, layout::kLeaseOwner}) {
      const std::uint64_t value = word(record + field);
      if (value != 0 && !layout::sealed_well(value, record + field)) return damaged(which, slot);
    }
    const std::size_t place = record + layout::kLeaseState;
    if (state == 0 || state == layout::seal(0, place)) return;  // vacant, or not committed yet
    const std::uint64_t generation = word(record + layout::kLeaseGeneration);
    const std::uint64_t bytes = word(record + layout::kLeaseBytes);
    const std::uint64_t owner = layout::payload(word(record + layout::kLeaseOwner));
    const std::uint64_t kind = layout::payload(state) >> 40;
    if (!layout::sealed_well(state, place, layout::fold(0, {generation, bytes})) || generation == 0 ||
        bytes == 0 || kind == 0 || kind >= kChunkStates) {
      return damaged(which, slot);
    }
    JournalImage::Lease lease;
    lease.id = ChunkId::of(slot, layout::payload(generation));
    lease.bytes = {layout::payload(bytes)};
    lease.state = static_cast<ChunkState>(kind);
    lease.marks = {(state & layout::kLeaseClean) != 0, (state & layout::kLeaseBound) != 0,
                   (state & layout::kLeaseSlab) != 0};
    if (const std::uint64_t who = layout::payload(state) & layout::kLeaseSlotMask; who != 0) {
      lease.session_slot = static_cast<std::uint32_t>(who - 1);
    }
    if (owner != 0) {
      lease.last_owner = JournalOwner{static_cast<std::uint32_t>((owner >> 32) - 1),
                                      static_cast<std::uint32_t>(owner & 0xffffffffU)};
    }
    out.push_back(lease);
  }

  std::span<const std::byte> memory_;
  JournalImage& image_;
  layout::Tables tables_;
};

}  // namespace

const JournalImage::Session* JournalImage::session_in(std::uint32_t slot) const {
  for (const Session& session : sessions) {
    if (session.id.slot() == slot) return &session;
  }
  return nullptr;
}

const JournalImage::Job* JournalImage::job_in(std::uint32_t slot) const {
  for (const Job& job : jobs) {
    if (job.slot == slot) return &job;
  }
  return nullptr;
}

Result<JournalImage> read_journal(std::span<const std::byte> memory) {
  // open() only reads; it asks for writable memory because what it returns can write.
  const std::span<std::byte> writable(const_cast<std::byte*>(memory.data()), memory.size());
  Result<Journal> journal = Journal::open(writable);
  if (!journal.ok()) return journal.error();
  JournalImage image;
  image.shape = journal->shape();
  Reader(memory, image).read_all();
  return image;
}

}  // namespace apportion
