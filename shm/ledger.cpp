#include "shm/ledger.hpp"

#include <algorithm>
#include <cstring>
#include <new>

#include "shm/memfd.hpp"

namespace apportion {

namespace {

constexpr PageKind kKind{"ledger", kLedgerMagic, kLedgerMajor, kLedgerMinor};
constexpr std::size_t kPairOffset = sizeof(PageHeader) + offsetof(LedgerHeader, slots);
constexpr std::size_t kFirstSlot = 256;
static_assert(sizeof(PageHeader) + sizeof(LedgerHeader) <= kFirstSlot);

constexpr std::size_t words_of(std::size_t bytes) {
  return bytes / sizeof(std::uint64_t);
}

template <typename Record>
std::uint64_t* put(std::uint64_t* at, const Record& record) {
  static_assert(sizeof(Record) % sizeof(std::uint64_t) == 0);
  std::memcpy(at, &record, sizeof record);
  return at + words_of(sizeof record);
}

// Copies a record of `stride` bytes: a newer minor's tail is dropped, an older minor's lack reads as zero.
template <typename Record>
Record get(const std::uint64_t* at, std::size_t stride) {
  Record record;
  std::memcpy(static_cast<void*>(&record), at, std::min(stride, sizeof record));
  return record;
}

}  // namespace

LedgerWriter::LedgerWriter(Fd fd, PageMapping mapping, SlotWriter slots, std::uint32_t max_jobs,
                           std::uint32_t max_sessions)
    : fd_(std::move(fd)),
      mapping_(std::move(mapping)),
      slots_(slots),
      max_jobs_(max_jobs),
      max_sessions_(max_sessions) {}

Result<LedgerWriter> LedgerWriter::create(std::uint64_t epoch, const Device& device, std::uint32_t max_jobs,
                                          std::uint32_t max_sessions) {
  const std::size_t payload_words =
      words_of(sizeof(LedgerCounts) + sizeof(TotalsRecord) + std::size_t{max_jobs} * sizeof(JobRecord) +
               std::size_t{max_sessions} * sizeof(SessionRecord));
  const Bytes size{kFirstSlot + 2 * slot_bytes_for(payload_words)};
  Result<Fd> fd = make_memfd("apportion-ledger", size);
  if (!fd) return fd.error();
  Result<PageMapping> mapping = PageMapping::map(fd->get(), size, PageMapping::Access::read_write);
  if (!mapping) return mapping.error();
  if (Status sealed = seal_read_only(*fd); !sealed) return sealed.error();

  auto* page = static_cast<std::byte*>(mapping->data());
  auto* ledger = new (page + sizeof(PageHeader)) LedgerHeader{};
  ledger->device_uuid.set(device.uuid);
  ledger->device_name.set(device.name);
  ledger->max_jobs = max_jobs;
  ledger->max_sessions = max_sessions;
  SlotWriter slots(page, kFirstSlot, payload_words, &ledger->slots);
  new (page) PageHeader{kLedgerMagic, kLedgerMajor, kLedgerMinor, size.value, epoch, kFirstSlot};
  return LedgerWriter(std::move(*fd), std::move(*mapping), slots, max_jobs, max_sessions);
}

void LedgerWriter::publish(const LedgerSnapshot& snapshot) {
  LedgerCounts counts;
  counts.jobs_total = static_cast<std::uint32_t>(snapshot.jobs.size());
  counts.sessions_total = static_cast<std::uint32_t>(snapshot.sessions.size());
  counts.jobs = std::min(counts.jobs_total, max_jobs_);
  counts.sessions = std::min(counts.sessions_total, max_sessions_);
  payload_.resize(words_of(sizeof counts + sizeof(TotalsRecord) + counts.jobs * sizeof(JobRecord) +
                           counts.sessions * sizeof(SessionRecord)));
  std::uint64_t* at = put(payload_.data(), counts);
  at = put(at, snapshot.totals);
  for (std::uint32_t i = 0; i < counts.jobs; ++i)
    at = put(at, snapshot.jobs[i]);
  for (std::uint32_t i = 0; i < counts.sessions; ++i)
    at = put(at, snapshot.sessions[i]);
  slots_.publish(payload_);
}

LedgerReader::LedgerReader(PageMapping mapping, LedgerHeader header, SlotReader slots)
    : mapping_(std::move(mapping)), header_(header), slots_(slots) {}

Result<LedgerReader> LedgerReader::open(int memfd) {
  if (Status sealed = require_sealed_size(memfd); !sealed) return sealed.error();
  const Result<Bytes> size = size_of(memfd);
  if (!size) return size.error();
  Result<PageMapping> mapping = PageMapping::map(memfd, *size, PageMapping::Access::read_only);
  if (!mapping) return mapping.error();
  if (Status page = check_page(mapping->data(), *size, kKind); !page) return page.error();
  Result<SlotReader> slots = SlotReader::open(mapping->data(), *size, kPairOffset);
  if (!slots) return slots.error();
  // All but `latest`, which moves: constant since the page was made.
  LedgerHeader header;
  const auto* bytes = static_cast<const std::byte*>(mapping->data()) + sizeof(PageHeader);
  constexpr std::size_t kLatest = offsetof(LedgerHeader, slots) + offsetof(SlotPairHeader, latest);
  std::memcpy(static_cast<void*>(&header), bytes, kLatest);
  constexpr std::size_t kAfter = kLatest + sizeof(std::uint64_t);
  std::memcpy(reinterpret_cast<std::byte*>(&header) + kAfter, bytes + kAfter, sizeof header - kAfter);
  for (const std::uint32_t stride : {header.totals_bytes, header.job_stride, header.session_stride}) {
    if (stride == 0 || stride % sizeof(std::uint64_t) != 0) {
      return Error{Errc::protocol, "the ledger is damaged: a record's length is no multiple of 8"};
    }
  }
  return LedgerReader(std::move(*mapping), header, *slots);
}

Result<LedgerSnapshot> LedgerReader::read() const {
  std::vector<std::uint64_t> payload;
  const Result<std::uint64_t> generation = slots_.read(payload);
  if (!generation) return generation.error();

  const Error damaged{Errc::protocol, "the ledger is damaged: its records do not fit its slot"};
  const std::size_t head = words_of(sizeof(LedgerCounts) + header_.totals_bytes);
  if (payload.size() < head) return damaged;
  const auto counts = get<LedgerCounts>(payload.data(), sizeof(LedgerCounts));
  const std::size_t jobs = words_of(std::size_t{header_.job_stride} * counts.jobs);
  const std::size_t sessions = words_of(std::size_t{header_.session_stride} * counts.sessions);
  if (payload.size() - head < jobs || payload.size() - head - jobs < sessions) return damaged;

  LedgerSnapshot snapshot;
  snapshot.epoch = epoch();
  snapshot.generation = *generation;
  snapshot.jobs_total = counts.jobs_total;
  snapshot.sessions_total = counts.sessions_total;
  const std::uint64_t* at = payload.data() + words_of(sizeof(LedgerCounts));
  snapshot.totals = get<TotalsRecord>(at, header_.totals_bytes);
  at = payload.data() + head;
  snapshot.jobs.reserve(counts.jobs);
  for (std::uint32_t i = 0; i < counts.jobs; ++i, at += words_of(header_.job_stride)) {
    snapshot.jobs.push_back(get<JobRecord>(at, header_.job_stride));
  }
  snapshot.sessions.reserve(counts.sessions);
  for (std::uint32_t i = 0; i < counts.sessions; ++i, at += words_of(header_.session_stride)) {
    snapshot.sessions.push_back(get<SessionRecord>(at, header_.session_stride));
  }
  return snapshot;
}

std::uint64_t LedgerReader::epoch() const {
  return static_cast<const PageHeader*>(mapping_.data())->epoch;
}
std::string LedgerReader::device_uuid() const {
  return std::string(header_.device_uuid.view());
}
std::string LedgerReader::device_name() const {
  return std::string(header_.device_name.view());
}

}  // namespace apportion
