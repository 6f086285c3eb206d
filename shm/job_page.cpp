#include "shm/job_page.hpp"

#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <new>

#include "shm/fault_point.hpp"
#include "shm/memfd.hpp"

namespace apportion {

namespace {

constexpr PageKind kKind{"job page", kJobPageMagic, kJobPageMajor, kJobPageMinor};
constexpr std::size_t kPairOffset = sizeof(PageHeader) + offsetof(JobPageHeader, slots);
constexpr std::size_t kFirstSlot = 192;
constexpr std::size_t kFigureWords = sizeof(JobFigures) / sizeof(std::uint64_t);
using FigureWords = std::array<std::uint64_t, kFigureWords>;
static_assert(sizeof(PageHeader) + sizeof(JobPageHeader) <= kFirstSlot);

// A slab's entry in words.
constexpr std::size_t kEntryWords = sizeof(SlabEntry) / sizeof(std::uint64_t);
constexpr std::size_t kIdWord = offsetof(SlabEntry, lease_id) / sizeof(std::uint64_t);
constexpr std::size_t kBytesWord = offsetof(SlabEntry, bytes) / sizeof(std::uint64_t);
constexpr std::size_t kHandleWord = offsetof(SlabEntry, handle) / sizeof(std::uint64_t);
using HandleWords = std::array<std::uint64_t, kIpcHandleBytes / sizeof(std::uint64_t)>;

std::uint64_t load(const std::uint64_t* word) {
  // A load never writes, so a read-only mapping is fine (as in slot_pair.cpp).
  return std::atomic_ref<std::uint64_t>(*const_cast<std::uint64_t*>(word)).load(std::memory_order_acquire);
}

void store(std::uint64_t* word, std::uint64_t value) {
  APPORTION_FAULT_POINT("slab_entry.before_store");
  std::atomic_ref<std::uint64_t>(*word).store(value, std::memory_order_release);
}

}  // namespace

JobPageWriter::JobPageWriter(Fd fd, PageMapping mapping, SlotWriter slots, std::uint32_t slabs)
    : fd_(std::move(fd)), mapping_(std::move(mapping)), slots_(slots), slab_count_(slabs) {}

Result<JobPageWriter> JobPageWriter::create(std::uint64_t epoch, const std::string& job,
                                            std::uint32_t slabs) {
  const Bytes size{job_page_bytes(slabs)};
  Result<Fd> fd = make_memfd("apportion-job", size);
  if (!fd) return fd.error();
  Result<PageMapping> mapping = PageMapping::map(fd->get(), size, PageMapping::Access::read_write);
  if (!mapping) return mapping.error();
  if (Status sealed = seal_read_only(*fd); !sealed) return sealed.error();

  auto* page = static_cast<std::byte*>(mapping->data());
  auto* header = new (page + sizeof(PageHeader)) JobPageHeader{};
  header->job.set(job);
  if (slabs != 0) {
    header->slab_table_version = kSlabTableVersion;
    header->slab_count = slabs;
    header->slab_table_offset = kJobPageBytes;
  }
  SlotWriter slots(page, kFirstSlot, kFigureWords, &header->slots);
  new (page) PageHeader{kJobPageMagic, kJobPageMajor, kJobPageMinor, size.value, epoch, kFirstSlot};
  return JobPageWriter(std::move(*fd), std::move(*mapping), slots, slabs);
}

void JobPageWriter::publish(const JobFigures& figures) {
  slots_.publish(std::bit_cast<FigureWords>(figures));
}

std::uint64_t* JobPageWriter::slab_words(std::uint32_t place) const {
  APPORTION_CHECK(place < slab_count_);
  return reinterpret_cast<std::uint64_t*>(static_cast<std::byte*>(mapping_.data()) + kJobPageBytes) +
         place * kEntryWords;
}

void JobPageWriter::put_slab(std::uint32_t place, std::uint64_t lease_id, Bytes bytes,
                             const IpcHandle& handle) {
  std::uint64_t* words = slab_words(place);
  APPORTION_CHECK(lease_id != 0 && load(&words[kIdWord]) == 0);
  store(&words[kBytesWord], bytes.value);
  const auto handle_words = std::bit_cast<HandleWords>(handle);
  for (std::size_t i = 0; i < handle_words.size(); ++i)
    store(&words[kHandleWord + i], handle_words[i]);
  store(&words[kIdWord], lease_id);  // F13: killed before this, the place is empty
}

void JobPageWriter::clear_slab(std::uint32_t place) {
  store(&slab_words(place)[kIdWord], 0);
}

JobPageReader::JobPageReader(PageMapping mapping, SlotReader slots, const std::uint64_t* slab_table,
                             std::uint32_t slab_count)
    : mapping_(std::move(mapping)), slots_(slots), slab_table_(slab_table), slab_count_(slab_count) {}

Result<JobPageReader> JobPageReader::open(int memfd) {
  if (Status sealed = require_sealed_size(memfd); !sealed) return sealed.error();
  const Result<Bytes> size = size_of(memfd);
  if (!size) return size.error();
  Result<PageMapping> mapping = PageMapping::map(memfd, *size, PageMapping::Access::read_only);
  if (!mapping) return mapping.error();
  if (Status page = check_page(mapping->data(), *size, kKind); !page) return page.error();
  Result<SlotReader> slots = SlotReader::open(mapping->data(), *size, kPairOffset);
  if (!slots) return slots.error();
  // Once, and never again: what the page says later cannot lead outside it. The header was checked to fit.
  JobPageHeader header;
  if (size->value < sizeof(PageHeader) + sizeof header)
    return Error{Errc::protocol, "the job page is damaged: it is shorter than its header"};
  const auto* page = static_cast<const std::byte*>(mapping->data());
  std::memcpy(static_cast<void*>(&header), page + sizeof(PageHeader), sizeof header);
  const std::uint64_t offset = header.slab_table_offset;
  // A table of another version is none that we can read.
  const std::uint32_t count = header.slab_table_version == kSlabTableVersion ? header.slab_count : 0;
  if (count != 0 && (offset % sizeof(std::uint64_t) != 0 || offset > size->value ||
                     count > (size->value - offset) / sizeof(SlabEntry)))
    return Error{Errc::protocol, "the job page is damaged: its slab table does not lie within it"};
  const auto* table = count == 0 ? nullptr : reinterpret_cast<const std::uint64_t*>(page + offset);
  return JobPageReader(std::move(*mapping), *slots, table, count);
}

Result<SlabHandle> JobPageReader::slab(std::uint32_t place, std::uint64_t lease_id) const {
  const auto none = [&](const std::string& why) {
    return Error{Errc::not_found,
                 "slab " + std::to_string(lease_id) + " of job \"" + job() + "\" cannot be opened: " + why};
  };
  if (place >= slab_count_)
    return none("its place " + std::to_string(place) + " is not among the " + std::to_string(slab_count_) +
                " of the job page");
  const std::uint64_t* words = slab_table_ + std::size_t{place} * kEntryWords;
  const auto there = [&] { return lease_id != 0 && load(&words[kIdWord]) == lease_id; };
  if (!there()) return none("the broker has taken it back, or it was lost");
  SlabHandle slab{Bytes{load(&words[kBytesWord])}, {}};
  HandleWords handle;
  for (std::size_t i = 0; i < handle.size(); ++i)
    handle[i] = load(&words[kHandleWord + i]);
  slab.handle = std::bit_cast<IpcHandle>(handle);
  // SYNC POINT (job_page.hpp): the copy is of one slab only where the id has not changed.
  if (!there()) return none("the broker has taken it back, or it was lost");
  return slab;
}

Result<JobFigures> JobPageReader::read() const {
  FigureWords words;
  const Result<std::uint64_t> generation = slots_.read(words);
  if (!generation) return generation.error();
  return std::bit_cast<JobFigures>(words);
}

std::uint64_t JobPageReader::epoch() const {
  return static_cast<const PageHeader*>(mapping_.data())->epoch;
}

std::string JobPageReader::job() const {
  const auto* header =
      reinterpret_cast<const JobPageHeader*>(static_cast<const PageHeader*>(mapping_.data()) + 1);
  return std::string(header->job.view());
}

}  // namespace apportion
