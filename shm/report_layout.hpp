// The report page: what a client says about itself, and the one word of credit both sides change.
//
// One memfd per session, sealed SHRINK, GROW, SEAL, so that the client cannot take it away under the broker.
// Written by that client; read by the broker, who loads every word once and clamps it (F23). Never: decides
// anything; it is a claim. Each word stands for itself, so relaxed stores and loads are enough on any
// machine; only the credit word orders something, and is changed by compare-and-swap. Names of the figures
// follow JAX's Device.memory_stats().
#pragma once

#include <cstdint>

#include "shm/page.hpp"

namespace apportion {

inline constexpr std::uint16_t kReportPageMajor = 1;
inline constexpr std::uint16_t kReportPageMinor = 0;

// Bytes unless a line says otherwise. Plain values: a copy of the page, or what a client wants to say.
struct ReportFigures {
  std::uint64_t bytes_in_use = 0;            // live blocks
  std::uint64_t bytes_cached = 0;            // in leased chunks, in no live block
  std::uint64_t bytes_reserved = 0;          // leased and mapped
  std::uint64_t bytes_limit = 0;             // the total this process was told
  std::uint64_t bytes_reservable_limit = 0;  // address range of the arena
  std::uint64_t peak_bytes_in_use = 0;
  std::uint64_t peak_bytes_reserved = 0;
  std::uint64_t largest_alloc_size = 0;
  std::uint64_t largest_free_block_bytes = 0;
  std::uint64_t pool_bytes = 0;  // chunks held, spares included
  std::uint64_t peak_pool_bytes = 0;
  std::uint64_t bytes_idle = 0;         // chunks with no live block: what a trim would give back
  std::uint64_t num_allocs = 0;         // count
  std::uint64_t num_frees = 0;          // count
  std::uint64_t fragmentation_ppm = 0;  // (free - largest free) / free, in millionths
  std::uint64_t hits_magazine = 0;      // allocations served by a thread's magazine
  std::uint64_t hits_stream = 0;        // by a block freed on the same stream
  std::uint64_t hits_free_list = 0;     // by the free lists
  std::uint64_t hits_spare = 0;         // by a spare chunk mapped ahead
  std::uint64_t hits_grown = 0;         // only after asking the broker
};
static_assert(sizeof(ReportFigures) == 160);

// The page's layout is PageHeader, this header, then ReportFigures word by word.
struct ReportHeader {
  std::uint64_t session_id = 0;
  std::uint64_t figures_bytes = sizeof(ReportFigures);
  std::uint64_t unspent_credit = 0;  // bytes; changed by compare-and-swap, by client and broker alike
  std::uint64_t writer_pid = 0;      // of the client, as it sees itself; for people
};
static_assert(sizeof(ReportHeader) == 32);

inline constexpr std::size_t kReportFiguresOffset = sizeof(PageHeader) + sizeof(ReportHeader);
inline constexpr std::size_t kReportPageBytes = 4096;
static_assert(kReportFiguresOffset + sizeof(ReportFigures) <= kReportPageBytes);

}  // namespace apportion
