// What every shared page begins with, and the check a reader makes before it believes anything else.
//
// Promises: a page of another kind or another major is refused with one clear line (F19); a newer minor is
// read, its additions ignored. Never: trusts a size inside a page beyond what is really mapped.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shm/bytes.hpp"
#include "shm/result.hpp"

namespace apportion {

inline constexpr std::uint64_t kLedgerMagic = 0x5245'4744'454c'5041;      // "APLEDGER"
inline constexpr std::uint64_t kJobPageMagic = 0x4547'4150'4f42'4a41;     // "AJOBPAGE"
inline constexpr std::uint64_t kReportPageMagic = 0x4547'4150'5450'5241;  // "ARPTPAGE"

struct PageHeader {
  std::uint64_t magic = 0;
  std::uint32_t major = 0;
  std::uint32_t minor = 0;
  std::uint64_t page_bytes = 0;    // of the whole memfd
  std::uint64_t epoch = 0;         // pages are new in each epoch
  std::uint64_t header_bytes = 0;  // PageHeader and the page's own header
};
static_assert(sizeof(PageHeader) == 40);

// Where the two slots of a page lie (shm/slot_pair.hpp). Part of a page's own header.
struct SlotPairHeader {
  std::uint64_t offset[2] = {};  // from the start of the page, multiples of 64
  std::uint64_t slot_bytes = 0;  // SlotHeader and payload
  std::uint64_t latest = 0;      // generation of the last complete publication; slot = latest % 2; 0: none
};
static_assert(sizeof(SlotPairHeader) == 32);

// "ledger", its magic and versions as this build knows them.
struct PageKind {
  const char* name;
  std::uint64_t magic;
  std::uint32_t major;
  std::uint32_t minor;
};

// Errc::protocol: too short, of another kind, of another major, or longer than what is mapped.
[[nodiscard]] Status check_page(const void* page, Bytes mapped, const PageKind& kind);

}  // namespace apportion
