#include "shm/slot_pair.hpp"

#include <atomic>
#include <bit>
#include <cstring>

#include "shm/fault_point.hpp"

namespace apportion {

namespace {

constexpr std::size_t kSlotHeaderWords = sizeof(SlotHeader) / sizeof(std::uint64_t);
constexpr std::size_t kCacheLine = 64;
// At 1,000 publications a second one attempt is enough; a reader that loses this many races gives up.
constexpr int kAttempts = 256;

static_assert(std::atomic_ref<std::uint64_t>::is_always_lock_free);

std::uint64_t load(const std::uint64_t* word) {
  // atomic_ref<const T> comes with C++26; a load never writes, so a read-only mapping is fine.
  return std::atomic_ref<std::uint64_t>(*const_cast<std::uint64_t*>(word)).load(std::memory_order_acquire);
}

void store(std::uint64_t* word, std::uint64_t value) {
  APPORTION_FAULT_POINT("slot.before_store");
  std::atomic_ref<std::uint64_t>(*word).store(value, std::memory_order_release);
}

// Each step is a bijection of the state, so that any change of a single word changes the result.
std::uint64_t mix(std::uint64_t state, std::uint64_t word) {
  return std::rotl((state ^ word) * 0x9e37'79b9'7f4a'7c15, 29);
}

std::uint64_t checksum_start(std::uint64_t generation, std::size_t words) {
  return mix(mix(0x4150'504f'5254'494f, generation), words);
}

}  // namespace

std::size_t slot_bytes_for(std::size_t payload_words) {
  const std::size_t bytes = sizeof(SlotHeader) + payload_words * sizeof(std::uint64_t);
  return (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
}

std::uint64_t slot_checksum(std::uint64_t generation, std::span<const std::uint64_t> payload) {
  std::uint64_t state = checksum_start(generation, payload.size());
  for (const std::uint64_t word : payload)
    state = mix(state, word);
  return state;
}

SlotWriter::SlotWriter(void* page, std::size_t first_slot, std::size_t payload_words, SlotPairHeader* pair)
    : latest_(&pair->latest), payload_words_(payload_words) {
  pair->slot_bytes = slot_bytes_for(payload_words);
  for (std::size_t i = 0; i < 2; ++i) {
    pair->offset[i] = first_slot + i * pair->slot_bytes;
    slots_[i] = reinterpret_cast<std::uint64_t*>(static_cast<std::byte*>(page) + pair->offset[i]);
  }
}

void SlotWriter::publish(std::span<const std::uint64_t> payload) {
  APPORTION_CHECK(payload.size() <= payload_words_);
  const std::uint64_t generation = generation_ + 1;
  std::uint64_t* slot = slots_[generation % 2];
  // SYNC POINT 1 (slot_pair.hpp): from here on this slot is nobody's; `latest` names the other one. (F13)
  store(&slot[0], generation);
  store(&slot[1], payload.size());
  for (std::size_t i = 0; i < payload.size(); ++i)
    store(&slot[kSlotHeaderWords + i], payload[i]);
  store(&slot[2], slot_checksum(generation, payload));
  // SYNC POINT 2: the slot is complete before it is named.
  store(latest_, generation);
  generation_ = generation;
}

Result<SlotReader> SlotReader::open(const void* page, Bytes mapped, std::size_t pair_offset) {
  const Error damaged{Errc::protocol, "a shared page is damaged: its slots do not lie within it"};
  if (pair_offset + sizeof(SlotPairHeader) > mapped.value) return damaged;
  const auto* bytes = static_cast<const std::byte*>(page);
  SlotPairHeader pair;
  std::memcpy(static_cast<void*>(&pair), bytes + pair_offset,
              offsetof(SlotPairHeader, latest));  // `latest` moves under us
  if (pair.slot_bytes < sizeof(SlotHeader) || pair.slot_bytes > mapped.value || pair.slot_bytes % 8 != 0)
    return damaged;
  SlotReader reader;
  for (std::size_t i = 0; i < 2; ++i) {
    if (pair.offset[i] % 8 != 0 || pair.offset[i] > mapped.value - pair.slot_bytes) return damaged;
    reader.slots_[i] = reinterpret_cast<const std::uint64_t*>(bytes + pair.offset[i]);
  }
  reader.latest_ =
      reinterpret_cast<const std::uint64_t*>(bytes + pair_offset + offsetof(SlotPairHeader, latest));
  reader.payload_words_ = (pair.slot_bytes - sizeof(SlotHeader)) / sizeof(std::uint64_t);
  return reader;
}

template <typename Prepare>
SlotReader::Outcome SlotReader::copy(std::uint64_t generation, Prepare prepare) const {
  const std::uint64_t* slot = slots_[generation % 2];
  if (load(&slot[0]) != generation)
    return load(latest_) == generation ? Outcome::damaged : Outcome::overtaken;
  const std::uint64_t words = load(&slot[1]);
  if (words <= payload_words_) {
    const std::span<std::uint64_t> into = prepare(words);
    std::uint64_t state = checksum_start(generation, words);
    for (std::size_t i = 0; i < words; ++i) {
      const std::uint64_t word = load(&slot[kSlotHeaderWords + i]);
      state = mix(state, word);
      if (i < into.size()) into[i] = word;
    }
    const std::uint64_t expected = load(&slot[2]);
    if (state == expected && load(&slot[0]) == generation) return Outcome::good;
  }
  return load(&slot[0]) == generation ? Outcome::damaged : Outcome::overtaken;
}

template <typename Prepare>
Result<std::uint64_t> SlotReader::read_with(Prepare prepare) const {
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const std::uint64_t latest = load(latest_);
    if (latest == 0) return Error{Errc::not_found, "nothing has been published on this page yet"};
    switch (copy(latest, prepare)) {
      case Outcome::good:
        return latest;
      case Outcome::overtaken:
        continue;
      case Outcome::damaged:
        break;
    }
    // F17: the named slot, or the name itself, is damaged. Whatever slot is whole by its own account will do,
    // the newer one first.
    std::uint64_t own[2] = {load(slots_[0]), load(slots_[1])};
    if (own[0] < own[1]) std::swap(own[0], own[1]);
    for (const std::uint64_t generation : own) {
      if (generation != 0 && copy(generation, prepare) == Outcome::good) return generation;
    }
    if (load(latest_) == latest) {
      return Error{Errc::protocol,
                   "the shared page is damaged: neither of its snapshots passes its checksum"};
    }
  }
  return Error{Errc::busy, "the shared page changes faster than it can be read"};
}

Result<std::uint64_t> SlotReader::read(std::vector<std::uint64_t>& payload) const {
  return read_with([&payload](std::size_t words) {
    payload.resize(words);
    return std::span<std::uint64_t>(payload);
  });
}

Result<std::uint64_t> SlotReader::read(std::span<std::uint64_t> payload) const {
  return read_with([payload](std::size_t words) {
    for (std::size_t i = words; i < payload.size(); ++i)
      payload[i] = 0;
    return payload;
  });
}

}  // namespace apportion
