// The journal's bytes: a header, then four tables of fixed records (jobs, sessions, chunks, credits), all of
// 8-byte words. docs/journal.md draws it.
//
// Promises: every change is one atomic 8-byte store. Every word that changes alone carries 48 bits of payload
// and 16 bits of check (a sealed word), so a flipped byte is noticed (F17); the state word, written last,
// also seals the record's other words. A record of zeros is a record never used. Never: read for decisions
// while the broker runs; only the next broker reads it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "broker/ids.hpp"

namespace apportion::journal_layout {

inline constexpr std::uint64_t kMagic = 0x4c4e524a4f505041ULL;  // "APPOJRNL", little-endian
inline constexpr std::uint32_t kMajor = 1;                      // another major is refused (F19)
inline constexpr std::uint32_t kMinor = 2;  // 1.2: slabs; a newer minor only uses spare words and bits

// Header words.
inline constexpr std::size_t kHeaderWords = 32;
enum HeaderWord : std::size_t {
  kMagicWord = 0,
  kVersionWord = 1,  // major in the high half
  kPoolWord = 2,     // bytes
  kChunkWord = 3,    // bytes
  kJobSlotsWord = 4,
  kSessionSlotsWord = 5,
  kChunkSlotsWord = 6,
  kCreditSlotsWord = 7,
  kDeviceWord = 8,  // and 9: the device's UUID
  kCheckWord = 16,  // over all words above; written last
  kEpochWord = 17,  // sealed; the only header word that changes
};

// Job record: who a job slot stands for. The name decides, not the place in the config.
inline constexpr std::size_t kJobWords = 16;
enum JobWord : std::size_t { kJobLength = 0, kJobName = 1 /* 8 words */, kJobState = 15 };
inline constexpr std::size_t kJobNameBytes = 64;

// Session record. Everything but the state is written while the state says vacant.
inline constexpr std::size_t kSessionWords = 16;
enum SessionWord : std::size_t {
  kSessionGeneration = 0,  // sealed
  kSessionToken = 1,       // and 2
  kSessionProcess = 3,     // uid high, pid low
  kSessionStart = 4,       // start time of the process, clock ticks since boot
  kSessionJob = 5,         // job slot low, bit 32: reclaimable
  kSessionState = 15,
};

// Chunk and credit records: one lease each.
inline constexpr std::size_t kLeaseWords = 4;
enum LeaseWord : std::size_t {
  kLeaseGeneration = 0,  // sealed
  kLeaseBytes = 1,       // sealed
  kLeaseOwner = 2,       // sealed: last owner, job slot + 1 in bits 32..47 (0: none), uid low
  kLeaseState = 3,  // sealed over generation and bytes: state in bits 40..47, session slot + 1 below 25 bits
};
// Bits of a lease's state word (since 1.1).
inline constexpr std::uint64_t kLeaseClean = 1ULL << 39;  // FREE only: overwritten since anybody had it
inline constexpr std::uint64_t kLeaseBound = 1ULL
                                             << 38;      // only for the user of the last owner, unless remade
inline constexpr std::uint64_t kLeaseSlab = 1ULL << 37;  // since 1.2: a slab, which dies with the helper
inline constexpr std::uint64_t kLeaseSlotMask = (1ULL << 25) - 1;

inline constexpr unsigned kPayloadBits = 48;
inline constexpr std::uint64_t kPayloadMask = (1ULL << kPayloadBits) - 1;

// A mixer with full avalanche (constants of SplitMix64, public domain).
[[nodiscard]] constexpr std::uint64_t mix(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15ULL;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
  return value ^ (value >> 31);
}

[[nodiscard]] constexpr std::uint64_t fold(std::uint64_t seed, std::initializer_list<std::uint64_t> words) {
  for (const std::uint64_t word : words)
    seed = mix(seed ^ word);
  return seed;
}

// `place` is the word's index in the journal: a word copied elsewhere does not check. `salt` binds the other
// words of the record. The check is never 0, so a sealed word is never 0.
[[nodiscard]] constexpr std::uint64_t seal(std::uint64_t payload, std::size_t place, std::uint64_t salt = 0) {
  const std::uint64_t check = (fold(salt, {place, payload}) >> kPayloadBits) | 1U;
  return (check << kPayloadBits) | payload;
}
[[nodiscard]] constexpr bool sealed_well(std::uint64_t word, std::size_t place, std::uint64_t salt = 0) {
  return word == seal(word & kPayloadMask, place, salt);
}
[[nodiscard]] constexpr std::uint64_t payload(std::uint64_t word) {
  return word & kPayloadMask;
}

// Where the tables lie, in words from the journal's start.
struct Tables {
  std::size_t jobs = 0;
  std::size_t sessions = 0;
  std::size_t chunks = 0;
  std::size_t credits = 0;
  std::size_t end = 0;
};
[[nodiscard]] constexpr Tables tables(std::uint64_t jobs, std::uint64_t sessions, std::uint64_t chunks,
                                      std::uint64_t credits) {
  Tables t;
  t.jobs = kHeaderWords;
  t.sessions = t.jobs + jobs * kJobWords;
  t.chunks = t.sessions + sessions * kSessionWords;
  t.credits = t.chunks + chunks * kLeaseWords;
  t.end = t.credits + credits * kLeaseWords;
  return t;
}

}  // namespace apportion::journal_layout
