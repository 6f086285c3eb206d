// Writer and reader of the job page (layout: shm/job_layout.hpp).
//
// Promises and limits as the ledger's: one whole snapshot in bounded time. Never: decides anything.
//
// A slab's entry is written while its id word is 0: bytes, handle, then the id. A reader takes the id, copies
// the entry, and takes the id again. SYNC POINT: every word is a release store that the id's 0 precedes, so a
// copy that holds one word of a later slab has also made that 0, or the later slab's id, visible to the
// second look. Ids are never used twice (broker/ids.hpp): the same id twice is the same slab throughout.
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
  // `slabs`: places in the slab table; 0 for a job whose memory comes as chunks. Places that were never used
  // cost no memory.
  [[nodiscard]] static Result<JobPageWriter> create(std::uint64_t epoch, const std::string& job,
                                                    std::uint32_t slabs = 0);

  void publish(const JobFigures& figures);

  // The place is empty, lease_id not 0. F12: before the GRANT that names it.
  void put_slab(std::uint32_t place, std::uint64_t lease_id, Bytes bytes, const IpcHandle& handle);
  void clear_slab(std::uint32_t place);
  [[nodiscard]] std::uint32_t slabs() const { return slab_count_; }

  [[nodiscard]] int fd() const { return fd_.get(); }

 private:
  JobPageWriter(Fd fd, PageMapping mapping, SlotWriter slots, std::uint32_t slabs);
  [[nodiscard]] std::uint64_t* slab_words(std::uint32_t place) const;
  Fd fd_;
  PageMapping mapping_;
  SlotWriter slots_;
  std::uint32_t slab_count_;
};

// What opens a slab.
struct SlabHandle {
  Bytes bytes;
  IpcHandle handle{};
};

// Thread-safe. Makes no system call after open().
class JobPageReader {
 public:
  // Errc::protocol: not a sealed job page of our major (F19).
  [[nodiscard]] static Result<JobPageReader> open(int memfd);

  // Errors as LedgerReader::read().
  [[nodiscard]] Result<JobFigures> read() const;

  // The slab that a GRANT put at `place` under this lease. Errc::not_found: it is not there (any more), or
  // the page has no such place.
  [[nodiscard]] Result<SlabHandle> slab(std::uint32_t place, std::uint64_t lease_id) const;

  [[nodiscard]] std::uint64_t epoch() const;
  [[nodiscard]] std::string job() const;

 private:
  JobPageReader(PageMapping mapping, SlotReader slots, const std::uint64_t* slab_table,
                std::uint32_t slab_count);
  PageMapping mapping_;
  SlotReader slots_;
  const std::uint64_t* slab_table_;  // in the mapping
  std::uint32_t slab_count_;
};

}  // namespace apportion
