// Two alternating slots and a generation: how a page of several words is published without a lock.
//
// Writer, generation g:  slot[g % 2].generation = g, then its words, then its checksum, then `latest` = g.
// Reader:                g = latest, copy slot[g % 2], check its generation again, check the checksum.
// Every word is stored with release and loaded with acquire, so this holds on weakly ordered machines too:
//
// SYNC POINT 1, slot.generation = g + 2: no word of g + 2 can be seen before it, for each of those stores is
// a release that it precedes. A reader whose copy holds one word of g + 2 has acquired that store, and its
// second look at slot.generation, which comes after its copy, finds g + 2 or later: it knows that the copy is
// mixed. SYNC POINT 2, latest = g: a reader that sees it sees every word and the checksum of g, or of g + 2
// and later, which SYNC POINT 1 tells it.
//
// F13: a writer that dies anywhere leaves `latest` at a complete slot: what a killed process has stored
// becomes visible in the same order as if it lived. F12: a message sent after publish() carries all of it,
// since the socket's lock in the kernel orders both sides. F17: where the checksum of the latest slot is
// wrong, the other is used. A reader never waits: it tries a fixed number of times. Never: a lock, a count of
// readers, or anything a reader writes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "shm/page.hpp"
#include "shm/result.hpp"

namespace apportion {

// At the start of each slot.
struct SlotHeader {
  std::uint64_t generation = 0;
  std::uint64_t payload_words = 0;
  std::uint64_t checksum = 0;  // of generation, payload_words and the payload: slot_checksum()
};
static_assert(sizeof(SlotHeader) == 24);

// Bytes of a slot for `payload_words`, rounded up to a cache line.
[[nodiscard]] std::size_t slot_bytes_for(std::size_t payload_words);

[[nodiscard]] std::uint64_t slot_checksum(std::uint64_t generation, std::span<const std::uint64_t> payload);

// Both classes point into a mapped page, which must outlive them.
class SlotWriter {
 public:
  // Fills `pair` (which lies in the page) for two slots from `first_slot` on, each with room for
  // `payload_words`.
  SlotWriter(void* page, std::size_t first_slot, std::size_t payload_words, SlotPairHeader* pair);

  // At most `payload_words`.
  void publish(std::span<const std::uint64_t> payload);

  [[nodiscard]] std::uint64_t generation() const { return generation_; }

 private:
  std::uint64_t* slots_[2];
  std::uint64_t* latest_;
  std::size_t payload_words_;
  std::uint64_t generation_ = 0;
};

class SlotReader {
 public:
  // Offsets and size are taken from the page once and checked against `mapped`: Errc::protocol.
  [[nodiscard]] static Result<SlotReader> open(const void* page, Bytes mapped, std::size_t pair_offset);

  // Both return the generation read. Errors as LedgerReader::read(). The first resizes `payload` to what was
  // published; the second fills `payload`, zero where less was published, cut where more was, and allocates
  // nothing.
  [[nodiscard]] Result<std::uint64_t> read(std::vector<std::uint64_t>& payload) const;
  [[nodiscard]] Result<std::uint64_t> read(std::span<std::uint64_t> payload) const;

 private:
  enum class Outcome { good, damaged, overtaken };
  SlotReader() = default;
  template <typename Prepare>
  [[nodiscard]] Result<std::uint64_t> read_with(Prepare prepare) const;
  template <typename Prepare>
  [[nodiscard]] Outcome copy(std::uint64_t generation, Prepare prepare) const;

  const std::uint64_t* slots_[2] = {};
  const std::uint64_t* latest_ = nullptr;
  std::size_t payload_words_ = 0;  // room in a slot
};

}  // namespace apportion
