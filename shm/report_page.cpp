#include "shm/report_page.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <new>

#include "shm/memfd.hpp"

namespace apportion {

namespace {

constexpr PageKind kKind{"report page", kReportPageMagic, kReportPageMajor, kReportPageMinor};
constexpr std::size_t kHeaderOffset = sizeof(PageHeader);
constexpr std::size_t kCreditOffset = kHeaderOffset + offsetof(ReportHeader, unspent_credit);
constexpr std::size_t kFigureWords = sizeof(ReportFigures) / sizeof(std::uint64_t);
constexpr std::uint64_t kMillion = 1'000'000;

std::atomic_ref<std::uint64_t> atomic(std::uint64_t* word) {
  return std::atomic_ref<std::uint64_t>(*word);
}

}  // namespace

ReportPage::ReportPage(Fd fd, PageMapping mapping) : fd_(std::move(fd)), mapping_(std::move(mapping)) {}

std::uint64_t* ReportPage::word(std::size_t offset) const {
  return reinterpret_cast<std::uint64_t*>(static_cast<std::byte*>(mapping_.data()) + offset);
}

Result<ReportPage> ReportPage::create(std::uint64_t epoch, std::uint64_t session_id) {
  const Bytes size{kReportPageBytes};
  Result<Fd> fd = make_memfd("apportion-report", size);
  if (!fd) return fd.error();
  Result<PageMapping> mapping = PageMapping::map(fd->get(), size, PageMapping::Access::read_write);
  if (!mapping) return mapping.error();
  if (Status sealed = seal_size(*fd); !sealed) return sealed.error();

  auto* page = static_cast<std::byte*>(mapping->data());
  new (page) PageHeader{kReportPageMagic,    kReportPageMajor, kReportPageMinor, size.value, epoch,
                        kReportFiguresOffset};
  new (page + kHeaderOffset) ReportHeader{.session_id = session_id};
  return ReportPage(std::move(*fd), std::move(*mapping));
}

Result<ReportPage> ReportPage::open(int memfd) {
  if (Status sealed = require_sealed_size(memfd); !sealed) return sealed.error();
  const Result<Bytes> size = size_of(memfd);
  if (!size) return size.error();
  if (size->value < kReportFiguresOffset + sizeof(ReportFigures)) {
    return Error{Errc::protocol, "the report page is damaged: it is too short"};
  }
  Result<PageMapping> mapping = PageMapping::map(memfd, *size, PageMapping::Access::read_write);
  if (!mapping) return mapping.error();
  if (Status page = check_page(mapping->data(), *size, kKind); !page) return page.error();
  ReportPage page(Fd{}, std::move(*mapping));
  atomic(page.word(kHeaderOffset + offsetof(ReportHeader, writer_pid)))
      .store(static_cast<std::uint64_t>(::getpid()), std::memory_order_relaxed);
  return page;
}

std::uint64_t ReportPage::session_id() const {
  return atomic(word(kHeaderOffset + offsetof(ReportHeader, session_id))).load(std::memory_order_relaxed);
}

void ReportPage::write(const ReportFigures& figures) {
  const auto words = std::bit_cast<std::array<std::uint64_t, kFigureWords>>(figures);
  for (std::size_t i = 0; i < kFigureWords; ++i) {
    atomic(word(kReportFiguresOffset + i * sizeof(std::uint64_t))).store(words[i], std::memory_order_relaxed);
  }
}

void ReportPage::write_one(std::uint64_t ReportFigures::*figure, std::uint64_t value) {
  // The page's words are the members of one ReportFigures that no code reads as a plain object.
  auto* figures = reinterpret_cast<ReportFigures*>(word(kReportFiguresOffset));
  atomic(&(figures->*figure)).store(value, std::memory_order_relaxed);
}

ReportFigures ReportPage::read_clamped(Bytes ceiling) const {
  std::array<std::uint64_t, kFigureWords> words;
  for (std::size_t i = 0; i < kFigureWords; ++i) {  // F23: each word once; the copy is what is judged
    words[i] = atomic(word(kReportFiguresOffset + i * sizeof(std::uint64_t))).load(std::memory_order_relaxed);
  }
  auto figures = std::bit_cast<ReportFigures>(words);
  for (std::uint64_t ReportFigures::*bytes :
       {&ReportFigures::bytes_in_use, &ReportFigures::bytes_cached, &ReportFigures::bytes_reserved,
        &ReportFigures::bytes_limit, &ReportFigures::peak_bytes_in_use, &ReportFigures::peak_bytes_reserved,
        &ReportFigures::largest_alloc_size, &ReportFigures::largest_free_block_bytes,
        &ReportFigures::pool_bytes, &ReportFigures::peak_pool_bytes, &ReportFigures::bytes_idle}) {
    figures.*bytes = std::min(figures.*bytes, ceiling.value);
  }
  // An address range may be a small multiple of the device.
  constexpr std::uint64_t kAddressSpace = std::uint64_t{1} << 57;
  figures.bytes_reservable_limit = std::min(figures.bytes_reservable_limit, kAddressSpace);
  figures.fragmentation_ppm = std::min(figures.fragmentation_ppm, kMillion);
  return figures;
}

Bytes ReportPage::unspent_credit(Bytes ceiling) const {
  return {std::min(atomic(word(kCreditOffset)).load(std::memory_order_acquire), ceiling.value)};
}

void ReportPage::add_credit(Bytes bytes) {
  auto credit = atomic(word(kCreditOffset));
  std::uint64_t seen = credit.load(std::memory_order_relaxed);
  std::uint64_t sum = 0;
  do {
    if (__builtin_add_overflow(seen, bytes.value, &sum)) sum = ~std::uint64_t{0};
  } while (!credit.compare_exchange_weak(seen, sum, std::memory_order_acq_rel, std::memory_order_relaxed));
}

bool ReportPage::take_credit(Bytes bytes) {
  auto credit = atomic(word(kCreditOffset));
  std::uint64_t seen = credit.load(std::memory_order_relaxed);
  do {
    if (seen < bytes.value) return false;
  } while (!credit.compare_exchange_weak(seen, seen - bytes.value, std::memory_order_acq_rel,
                                         std::memory_order_relaxed));
  return true;
}

Bytes ReportPage::take_credit_up_to(Bytes bytes) {
  auto credit = atomic(word(kCreditOffset));
  std::uint64_t seen = credit.load(std::memory_order_relaxed);
  std::uint64_t taken = 0;
  do {
    taken = std::min(seen, bytes.value);
    if (taken == 0) return {};
  } while (!credit.compare_exchange_weak(seen, seen - taken, std::memory_order_acq_rel,
                                         std::memory_order_relaxed));
  return {taken};
}

}  // namespace apportion
