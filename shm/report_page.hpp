// Both ends of the report page (layout: shm/report_layout.hpp).
//
// Promises: F23, every word is loaded once and clamped before use, so that a scribbling client changes what
// is shown about itself and nothing else. The credit word never wraps. Never: a snapshot; words may be of
// different moments. Thread-safe: single atomic words.
#pragma once

#include "shm/fd.hpp"
#include "shm/page_mapping.hpp"
#include "shm/report_layout.hpp"
#include "shm/result.hpp"

namespace apportion {

class ReportPage {
 public:
  // The broker: makes and seals it. Errc::system.
  [[nodiscard]] static Result<ReportPage> create(std::uint64_t epoch, std::uint64_t session_id);
  // The client: maps it writable. Errc::protocol: not a report page of our major, or its size is not sealed.
  [[nodiscard]] static Result<ReportPage> open(int memfd);

  // To send in WELCOME; none after open().
  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] std::uint64_t session_id() const;

  // The client's side. Each word is one relaxed store.
  void write(const ReportFigures& figures);
  // For the hot path: one figure, by its member. write_one(&ReportFigures::bytes_in_use, n).
  void write_one(std::uint64_t ReportFigures::*figure, std::uint64_t value);

  // The broker's side: every word once, byte figures cut to `ceiling` (the device's total), fragmentation to
  // 1,000,000, counts taken as they are.
  [[nodiscard]] ReportFigures read_clamped(Bytes ceiling) const;

  // Unspent credit, cut to `ceiling` (what the broker granted).
  [[nodiscard]] Bytes unspent_credit(Bytes ceiling) const;
  // Adds credit, saturating.
  void add_credit(Bytes bytes);
  // Takes all of `bytes` or nothing: a client spending credit.
  [[nodiscard]] bool take_credit(Bytes bytes);
  // Takes up to `bytes` and says how much: the broker recalling. F23: what a client wrote there is a claim;
  // the caller cuts the answer to what it granted.
  [[nodiscard]] Bytes take_credit_up_to(Bytes bytes);

 private:
  ReportPage(Fd fd, PageMapping mapping);
  [[nodiscard]] std::uint64_t* word(std::size_t offset) const;
  Fd fd_;
  PageMapping mapping_;
};

}  // namespace apportion
