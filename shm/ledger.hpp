// Writer and reader of the ledger (layout and words: shm/ledger_layout.hpp).
//
// Promises: a reader gets one whole snapshot, the latest or the one before it, in bounded time, whatever the
// writer does or however it died (F13); a damaged slot makes it use the other (F17). Counts are bounded:
// what does not fit is left out and counted. Never: blocks the writer; shares a lock.
#pragma once

#include <string>
#include <vector>

#include "shm/fd.hpp"
#include "shm/ledger_layout.hpp"
#include "shm/page_mapping.hpp"
#include "shm/result.hpp"
#include "shm/slot_pair.hpp"

namespace apportion {

// What is published and what is read: plain values.
struct LedgerSnapshot {
  std::uint64_t epoch = 0;       // filled by the reader
  std::uint64_t generation = 0;  // filled by the reader
  TotalsRecord totals;
  std::vector<JobRecord> jobs;
  std::vector<SessionRecord> sessions;
  std::uint32_t jobs_total = 0;  // filled by the reader: what exists, listed or not
  std::uint32_t sessions_total = 0;
};

// One per epoch. Not thread-safe: it belongs to the broker's strand.
class LedgerWriter {
 public:
  struct Device {
    std::string uuid;
    std::string name;
  };
  // Makes, maps and seals the memfd. Errc::system.
  [[nodiscard]] static Result<LedgerWriter> create(std::uint64_t epoch, const Device& device,
                                                   std::uint32_t max_jobs = kLedgerMaxJobs,
                                                   std::uint32_t max_sessions = kLedgerMaxSessions);

  // The next generation. Sessions whose `job` is not listed keep the index they have.
  void publish(const LedgerSnapshot& snapshot);

  // To send to clients; writing through it is refused by the seal.
  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] std::uint64_t generation() const { return slots_.generation(); }

 private:
  LedgerWriter(Fd fd, PageMapping mapping, SlotWriter slots, std::uint32_t max_jobs,
               std::uint32_t max_sessions);
  Fd fd_;
  PageMapping mapping_;
  SlotWriter slots_;
  std::uint32_t max_jobs_;
  std::uint32_t max_sessions_;
  std::vector<std::uint64_t> payload_;
};

// Thread-safe: reads only.
class LedgerReader {
 public:
  // Maps read-only and keeps no fd. Errc::protocol: not a sealed ledger of our major (F19).
  [[nodiscard]] static Result<LedgerReader> open(int memfd);

  // Errc::not_found: nothing published yet. Errc::protocol: both slots damaged. Errc::busy: overtaken by the
  // writer again and again (a writer far above 1,000 publications a second).
  [[nodiscard]] Result<LedgerSnapshot> read() const;

  [[nodiscard]] std::uint64_t epoch() const;
  [[nodiscard]] std::string device_uuid() const;
  [[nodiscard]] std::string device_name() const;

 private:
  LedgerReader(PageMapping mapping, LedgerHeader header, SlotReader slots);
  PageMapping mapping_;
  LedgerHeader header_;
  SlotReader slots_;
};

}  // namespace apportion
