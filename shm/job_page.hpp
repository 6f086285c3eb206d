// Writer and reader of the job page (layout: shm/job_layout.hpp).
//
// Promises and limits as the ledger's: one whole snapshot in bounded time. Never: decides anything.
#pragma once

#include <string>

#include "shm/fd.hpp"
#include "shm/job_layout.hpp"
#include "shm/page_mapping.hpp"
#include "shm/result.hpp"
#include "shm/slot_pair.hpp"

namespace apportion {

// One per job and epoch. Not thread-safe.
class JobPageWriter {
 public:
  [[nodiscard]] static Result<JobPageWriter> create(std::uint64_t epoch, const std::string& job);

  void publish(const JobPageFigures& figures);

  [[nodiscard]] int fd() const { return fd_.get(); }

 private:
  JobPageWriter(Fd fd, PageMapping mapping, SlotWriter slots);
  Fd fd_;
  PageMapping mapping_;
  SlotWriter slots_;
};

// Thread-safe. Makes no system call after open().
class JobPageReader {
 public:
  // Errc::protocol: not a sealed job page of our major (F19).
  [[nodiscard]] static Result<JobPageReader> open(int memfd);

  // Errors as LedgerReader::read().
  [[nodiscard]] Result<JobPageFigures> read() const;

  [[nodiscard]] std::uint64_t epoch() const;
  [[nodiscard]] std::string job() const;

 private:
  JobPageReader(PageMapping mapping, SlotReader slots);
  PageMapping mapping_;
  SlotReader slots_;
};

}  // namespace apportion
