#include "shm/job_page.hpp"

#include <array>
#include <bit>
#include <new>

#include "shm/memfd.hpp"

namespace apportion {

namespace {

constexpr PageKind kKind{"job page", kJobPageMagic, kJobPageMajor, kJobPageMinor};
constexpr std::size_t kPairOffset = sizeof(PageHeader) + offsetof(JobPageHeader, slots);
constexpr std::size_t kFirstSlot = 192;
constexpr std::size_t kFigureWords = sizeof(JobPageFigures) / sizeof(std::uint64_t);
using FigureWords = std::array<std::uint64_t, kFigureWords>;
static_assert(sizeof(PageHeader) + sizeof(JobPageHeader) <= kFirstSlot);

}  // namespace

JobPageWriter::JobPageWriter(Fd fd, PageMapping mapping, SlotWriter slots)
    : fd_(std::move(fd)), mapping_(std::move(mapping)), slots_(slots) {}

Result<JobPageWriter> JobPageWriter::create(std::uint64_t epoch, const std::string& job) {
  const Bytes size{kJobPageBytes};
  Result<Fd> fd = make_memfd("apportion-job", size);
  if (!fd) return fd.error();
  Result<PageMapping> mapping = PageMapping::map(fd->get(), size, PageMapping::Access::read_write);
  if (!mapping) return mapping.error();
  if (Status sealed = seal_read_only(*fd); !sealed) return sealed.error();

  auto* page = static_cast<std::byte*>(mapping->data());
  auto* header = new (page + sizeof(PageHeader)) JobPageHeader{};
  header->job.set(job);
  SlotWriter slots(page, kFirstSlot, kFigureWords, &header->slots);
  new (page) PageHeader{kJobPageMagic, kJobPageMajor, kJobPageMinor, size.value, epoch, kFirstSlot};
  return JobPageWriter(std::move(*fd), std::move(*mapping), slots);
}

void JobPageWriter::publish(const JobPageFigures& figures) {
  slots_.publish(std::bit_cast<FigureWords>(figures));
}

JobPageReader::JobPageReader(PageMapping mapping, SlotReader slots)
    : mapping_(std::move(mapping)), slots_(slots) {}

Result<JobPageReader> JobPageReader::open(int memfd) {
  if (Status sealed = require_sealed_size(memfd); !sealed) return sealed.error();
  const Result<Bytes> size = size_of(memfd);
  if (!size) return size.error();
  Result<PageMapping> mapping = PageMapping::map(memfd, *size, PageMapping::Access::read_only);
  if (!mapping) return mapping.error();
  if (Status page = check_page(mapping->data(), *size, kKind); !page) return page.error();
  Result<SlotReader> slots = SlotReader::open(mapping->data(), *size, kPairOffset);
  if (!slots) return slots.error();
  return JobPageReader(std::move(*mapping), *slots);
}

Result<JobPageFigures> JobPageReader::read() const {
  FigureWords words;
  const Result<std::uint64_t> generation = slots_.read(words);
  if (!generation) return generation.error();
  return std::bit_cast<JobPageFigures>(words);
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
