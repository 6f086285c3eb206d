// Feeds arbitrary pages to the ledger's and the job page's readers (F17): a damaged page is refused or read
// within its bounds, never followed outside. Half of the inputs get correct checksums, so that the fuzzer
// reaches what lies behind them.
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "shm/job_page.hpp"
#include "shm/ledger.hpp"
#include "shm/memfd.hpp"

using namespace apportion;

namespace {

void must(bool holds) {
  if (!holds) __builtin_trap();
}

// Makes both slots whole by their own account, where they lie within the page.
void repair(std::vector<std::uint64_t>& page, std::size_t pair_offset) {
  SlotPairHeader pair;
  if (pair_offset + sizeof pair > page.size() * 8) return;
  auto* bytes = reinterpret_cast<std::byte*>(page.data());
  std::memcpy(static_cast<void*>(&pair), bytes + pair_offset, sizeof pair);
  for (const std::uint64_t offset : pair.offset) {
    if (offset % 8 != 0 || offset >= page.size() * 8) continue;
    const std::size_t first = offset / 8;
    if (page.size() - first < 3) continue;
    const std::uint64_t words = page[first + 1] % (page.size() - first - 2);
    page[first + 1] = words;
    page[first + 2] = slot_checksum(page[first], std::span(page).subspan(first + 3, words));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 64 || size > 1 << 16) return 0;
  const bool ledger = (data[0] & 1) != 0;
  std::vector<std::uint64_t> page((size - 1) / 8);
  std::memcpy(page.data(), data + 1, page.size() * 8);
  const std::uint64_t page_bytes = page.size() * 8;
  std::memcpy(reinterpret_cast<std::byte*>(page.data()) + offsetof(PageHeader, page_bytes), &page_bytes, 8);
  if ((data[0] & 2) != 0) {
    repair(page,
           sizeof(PageHeader) + (ledger ? offsetof(LedgerHeader, slots) : offsetof(JobPageHeader, slots)));
  }

  Result<Fd> fd = make_memfd("apportion-fuzz", Bytes{page_bytes});
  must(fd.ok());
  must(::pwrite(fd->get(), page.data(), page_bytes, 0) == static_cast<ssize_t>(page_bytes));
  must(seal_size(*fd).ok());
  if (ledger) {
    const Result<LedgerReader> reader = LedgerReader::open(fd->get());
    if (!reader) return 0;
    const Result<LedgerSnapshot> snapshot = reader->read();
    if (!snapshot) return 0;
    must(snapshot->jobs.size() * 8 <= page_bytes && snapshot->sessions.size() * 8 <= page_bytes);
  } else {
    const Result<JobPageReader> reader = JobPageReader::open(fd->get());
    if (!reader.ok()) return 0;
    static_cast<void>(reader->read());
    // Every place that there can be, and some that there cannot, under an id of the input's.
    std::uint64_t id = 0;
    std::memcpy(&id, data + 1 + sizeof(PageHeader), sizeof id);
    for (std::uint32_t place = 0; place <= size / sizeof(SlabEntry); ++place)
      static_cast<void>(reader->slab(place, id));
    must(!reader->slab(~0U, id).ok());
  }
  return 0;
}
