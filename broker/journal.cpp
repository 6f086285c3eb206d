#include "broker/journal.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

namespace apportion {

namespace layout = journal_layout;

JournalShape JournalShape::for_pool(Bytes pool, Bytes chunk, Bytes granularity) {
  JournalShape shape;
  shape.pool = pool;
  shape.chunk = chunk;
  shape.chunk_slots = static_cast<std::uint32_t>(pool / granularity);
  return shape;
}

std::size_t JournalShape::bytes() const {
  return layout::tables(job_slots, session_slots, chunk_slots, credit_slots).end * sizeof(std::uint64_t);
}

namespace {

constexpr std::uint64_t kMaxSlots = 1U << ChunkId::kSlotBits;

bool slots_fit(const JournalShape& shape) {
  // A session slot and a job slot are stored plus one, in 25 and 16 bits.
  return shape.job_slots < 0xffffU && shape.session_slots <= kMaxSlots && shape.chunk_slots <= kMaxSlots &&
         shape.credit_slots <= kMaxSlots;
}

std::uint64_t header_check(const std::uint64_t* words) {
  std::uint64_t sum = layout::kMagic;
  for (std::size_t i = 0; i < layout::kCheckWord; ++i)
    sum = layout::fold(sum, {words[i]});
  return sum;
}

}  // namespace

Journal::Journal(std::uint64_t* words, const JournalShape& shape)
    : words_(words),
      shape_(shape),
      tables_(layout::tables(shape.job_slots, shape.session_slots, shape.chunk_slots, shape.credit_slots)) {}

Result<Journal> Journal::format(std::span<std::byte> memory, const JournalShape& shape) {
  if (!slots_fit(shape))
    return Error{Errc::invalid, "journal: the pool has too many chunks; use a larger chunk"};
  if (memory.size() < shape.bytes() ||
      reinterpret_cast<std::uintptr_t>(memory.data()) % sizeof(std::uint64_t) != 0) {
    return Error{Errc::invalid, "journal: its memory is too small: " + std::to_string(memory.size()) +
                                    " bytes, needs " + std::to_string(shape.bytes())};
  }
  auto* words = reinterpret_cast<std::uint64_t*>(memory.data());
  Journal journal(words, shape);
  words[layout::kMagicWord] = layout::kMagic;
  words[layout::kVersionWord] = (std::uint64_t{layout::kMajor} << 32) | layout::kMinor;
  words[layout::kPoolWord] = shape.pool.value;
  words[layout::kChunkWord] = shape.chunk.value;
  words[layout::kJobSlotsWord] = shape.job_slots;
  words[layout::kSessionSlotsWord] = shape.session_slots;
  words[layout::kChunkSlotsWord] = shape.chunk_slots;
  words[layout::kCreditSlotsWord] = shape.credit_slots;
  words[layout::kDeviceWord] = shape.device_uuid[0];
  words[layout::kDeviceWord + 1] = shape.device_uuid[1];
  journal.store(layout::kCheckWord, header_check(words));  // the header counts from here
  return journal;
}

Result<Journal> Journal::open(std::span<std::byte> memory) {
  if (memory.size() < layout::kHeaderWords * sizeof(std::uint64_t) ||
      reinterpret_cast<std::uintptr_t>(memory.data()) % sizeof(std::uint64_t) != 0) {
    return Error{Errc::protocol, "journal: too small to be one"};
  }
  auto* words = reinterpret_cast<std::uint64_t*>(memory.data());
  if (words[layout::kMagicWord] != layout::kMagic) return Error{Errc::protocol, "journal: not a journal"};
  const std::uint64_t major = words[layout::kVersionWord] >> 32;
  if (major != layout::kMajor) {
    return Error{Errc::protocol, "journal: layout " + std::to_string(major) +
                                     " was written by another version; this one reads " +
                                     std::to_string(layout::kMajor) + ": end its clients, then start again"};
  }
  if (words[layout::kCheckWord] != header_check(words))
    return Error{Errc::protocol, "journal: its header is damaged"};
  JournalShape shape;
  shape.pool = {words[layout::kPoolWord]};
  shape.chunk = {words[layout::kChunkWord]};
  shape.job_slots = static_cast<std::uint32_t>(words[layout::kJobSlotsWord]);
  shape.session_slots = static_cast<std::uint32_t>(words[layout::kSessionSlotsWord]);
  shape.chunk_slots = static_cast<std::uint32_t>(words[layout::kChunkSlotsWord]);
  shape.credit_slots = static_cast<std::uint32_t>(words[layout::kCreditSlotsWord]);
  shape.device_uuid = {words[layout::kDeviceWord], words[layout::kDeviceWord + 1]};
  if (!slots_fit(shape) || memory.size() < shape.bytes()) {
    return Error{Errc::protocol, "journal: shorter than its header says"};
  }
  return Journal(words, shape);
}

std::span<const std::byte> Journal::memory() const {
  return {reinterpret_cast<const std::byte*>(words_), tables_.end * sizeof(std::uint64_t)};
}

std::uint64_t Journal::load(std::size_t place) const {
  return std::atomic_ref<std::uint64_t>(words_[place]).load(std::memory_order_relaxed);
}

void Journal::store(std::size_t place, std::uint64_t value) {
  // Release: a reader of the same memory after our death sees the stores in this order.
  std::atomic_ref<std::uint64_t>(words_[place]).store(value, std::memory_order_release);
  if (observer_ != nullptr) observer_(context_);
}

void Journal::store_sealed(std::size_t place, std::uint64_t value, std::uint64_t salt) {
  APPORTION_CHECK(value <= layout::kPayloadMask);
  store(place, layout::seal(value, place, salt));
}

void Journal::set_epoch(std::uint64_t epoch) {
  store_sealed(layout::kEpochWord, epoch);
}

void Journal::put_job(std::uint32_t slot, std::string_view name) {
  APPORTION_CHECK(slot < shape_.job_slots && name.size() < layout::kJobNameBytes);
  const std::size_t record = tables_.jobs + slot * layout::kJobWords;
  std::array<std::uint64_t, layout::kJobNameBytes / 8> text{};
  std::memcpy(text.data(), name.data(), name.size());
  std::uint64_t salt = layout::fold(0, {name.size()});
  store(record + layout::kJobLength, name.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    store(record + layout::kJobName + i, text[i]);
    salt = layout::fold(salt, {text[i]});
  }
  store_sealed(record + layout::kJobState, 1, salt);
}

std::uint64_t Journal::session_generation(std::uint32_t slot) const {
  const std::size_t place = tables_.sessions + slot * layout::kSessionWords + layout::kSessionGeneration;
  const std::uint64_t word = load(place);
  return layout::sealed_well(word, place) ? layout::payload(word) : 0;
}

std::uint64_t Journal::chunk_generation(std::uint32_t slot) const {
  const std::size_t place = tables_.chunks + slot * layout::kLeaseWords + layout::kLeaseGeneration;
  const std::uint64_t word = load(place);
  return layout::sealed_well(word, place) ? layout::payload(word) : 0;
}

void Journal::put_session(SessionId id, const JournalSession& session) {
  APPORTION_CHECK(id.slot() < shape_.session_slots);
  const std::size_t record = tables_.sessions + id.slot() * layout::kSessionWords;
  store_sealed(record + layout::kSessionGeneration, id.generation());
  std::array<std::uint64_t, 2> token{};
  std::memcpy(token.data(), session.token.bytes.data(), sizeof token);
  store(record + layout::kSessionToken, token[0]);
  store(record + layout::kSessionToken + 1, token[1]);
  store(record + layout::kSessionProcess,
        (std::uint64_t{session.uid} << 32) | static_cast<std::uint32_t>(session.pid));
  store(record + layout::kSessionStart, session.start_time);
  store(record + layout::kSessionJob, (std::uint64_t{session.reclaimable} << 32) | session.job_slot);
  set_session(id, SessionPhase::attached);
}

void Journal::set_session(SessionId id, SessionPhase state) {
  const std::size_t record = tables_.sessions + id.slot() * layout::kSessionWords;
  std::uint64_t salt = 0;
  if (state != SessionPhase::vacant) {
    for (std::size_t i = layout::kSessionGeneration; i <= layout::kSessionJob; ++i) {
      salt = layout::fold(salt, {load(record + i)});
    }
  }
  store_sealed(record + layout::kSessionState, static_cast<std::uint64_t>(state), salt);
}

void Journal::put_chunk(ChunkId id, Bytes bytes, bool slab) {
  APPORTION_CHECK(id.slot() < shape_.chunk_slots);
  const std::size_t record = tables_.chunks + id.slot() * layout::kLeaseWords;
  store_sealed(record + layout::kLeaseGeneration, id.generation());
  store_sealed(record + layout::kLeaseBytes, bytes.value);
  store_sealed(record + layout::kLeaseOwner, 0);
  set_chunk(id, ChunkState::making, std::nullopt, {.slab = slab});
}

void Journal::set_chunk(ChunkId id, ChunkState state, std::optional<SessionId> lessee, ChunkMarks marks) {
  APPORTION_CHECK(!marks.clean || state == ChunkState::free);
  const std::size_t record = tables_.chunks + id.slot() * layout::kLeaseWords;
  const std::uint64_t who = lessee ? std::uint64_t{lessee->slot()} + 1 : 0;
  const std::uint64_t salt =
      state == ChunkState::vacant
          ? 0
          : layout::fold(0, {load(record + layout::kLeaseGeneration), load(record + layout::kLeaseBytes)});
  const std::uint64_t bits = (marks.clean ? layout::kLeaseClean : 0) |
                             (marks.bound ? layout::kLeaseBound : 0) | (marks.slab ? layout::kLeaseSlab : 0);
  store_sealed(record + layout::kLeaseState, (static_cast<std::uint64_t>(state) << 40) | bits | who, salt);
}

void Journal::set_owner(ChunkId id, JournalOwner owner) {
  const std::size_t record = tables_.chunks + id.slot() * layout::kLeaseWords;
  store_sealed(record + layout::kLeaseOwner, ((std::uint64_t{owner.job_slot} + 1) << 32) | owner.uid);
}

}  // namespace apportion
