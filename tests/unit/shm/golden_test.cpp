// Pins what other versions of Apportion depend on: sizes, offsets and byte images of messages and pages.
//
// A difference here is a change of the protocol or of a layout. Appending a field is a new minor, anything
// else a new major: change the version, write it down in docs/protocol.md or docs/ledger.md, and only then
// let APPORTION_WRITE_GOLDEN=1 write golden.txt anew (the test fails when it has written).
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "golden_layouts.hpp"
#include "sample_messages.hpp"
#include "shm/job_page.hpp"
#include "shm/ledger.hpp"
#include "shm/memfd.hpp"
#include "shm/report_page.hpp"
#include "support.hpp"
#include "tests/support/catch.hpp"

using namespace apportion;
using namespace apportion::testing;

namespace {

// "41 50 00x12 ff": bytes in hex, runs of four or more equal bytes as byte x count.
std::string image_of(std::span<const std::byte> bytes) {
  std::string text;
  for (std::size_t i = 0; i < bytes.size();) {
    std::size_t run = 1;
    while (i + run < bytes.size() && bytes[i + run] == bytes[i])
      ++run;
    if (run < 4) run = 1;
    char hex[40];
    std::snprintf(hex, sizeof hex, run == 1 ? " %02x" : " %02xx%zu", static_cast<unsigned>(bytes[i]), run);
    text += hex;
    i += run;
  }
  return text;
}

std::vector<std::byte> contents_of(int memfd) {
  std::vector<std::byte> bytes(size_of(memfd).value().value);
  REQUIRE(::pread(memfd, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  return bytes;
}

std::string describe() {
  std::ostringstream text;
  text << "protocol " << wire::kMajor << "." << wire::kMinor << "\n";
  text << "ledger " << kLedgerMajor << "." << kLedgerMinor << "\n";
  text << "job page " << kJobPageMajor << "." << kJobPageMinor << "\n";
  text << "report page " << kReportPageMajor << "." << kReportPageMinor << "\n";
  for (const Layout& layout : layouts()) {
    text << "\n" << layout.name << " size " << layout.size << "\n";
    for (const Field& field : layout.fields) {
      text << "  " << field.name << " at " << field.offset << " size " << field.size << "\n";
    }
  }
  for (const wire::Message& message : sample_messages()) {
    const auto type = wire::header_of(message).type;
    text << "\nimage " << wire::to_text(static_cast<wire::Type>(type)) << " (" << type << ")\n"
         << image_of(wire::bytes_of(message)) << "\n";
  }

  auto ledger = LedgerWriter::create(3, {"GPU-1", "Simulated device"}, 2, 2);
  REQUIRE(ledger.ok());
  LedgerSnapshot snapshot;
  snapshot.totals = sample_totals();
  snapshot.jobs = {sample_job()};
  snapshot.sessions = {sample_session()};
  ledger->publish(snapshot);
  text << "\nimage ledger\n" << image_of(contents_of(ledger->fd())) << "\n";

  auto job = JobPageWriter::create(3, "trainer");
  REQUIRE(job.ok());
  JobFigures figures;
  for (std::size_t i = 0; i < sizeof figures / 8; ++i)
    reinterpret_cast<std::uint64_t*>(&figures)[i] = 0xc1 + i;
  job->publish(figures);
  text << "\nimage job page\n" << image_of(contents_of(job->fd())) << "\n";

  auto slabs = JobPageWriter::create(3, "sharer", 3);
  REQUIRE(slabs.ok());
  slabs->publish(figures);
  slabs->put_slab(1, 0x83, 32_MiB, sample_handle());
  text << "\nimage job page with slabs\n" << image_of(contents_of(slabs->fd())) << "\n";

  auto report = ReportPage::create(3, 77);
  REQUIRE(report.ok());
  report->write(sample_figures());
  report->add_credit(5_B);
  text << "\nimage report page\n" << image_of(contents_of(report->fd())) << "\n";
  return text.str();
}

}  // namespace

TEST_CASE("golden: every byte of every message and page belongs to a listed field") {
  for (const Layout& layout : layouts()) {
    CAPTURE(layout.name);
    std::size_t at = 0;
    for (const Field& field : layout.fields) {
      CAPTURE(field.name);
      CHECK(field.offset == at);
      at = field.offset + field.size;
    }
    CHECK(at == layout.size);
  }
}

TEST_CASE("golden: versions, sizes, offsets and byte images are the published ones") {
  const std::string now = describe();
  if (std::getenv("APPORTION_WRITE_GOLDEN") != nullptr) {
    std::ofstream(APPORTION_GOLDEN) << now;
    FAIL("wrote " APPORTION_GOLDEN);
  }
  std::ifstream file(APPORTION_GOLDEN);
  REQUIRE(file.good());
  std::istringstream current(now);
  std::string expected_line;
  std::string line;
  std::string section;
  int number = 0;
  while (std::getline(file, expected_line)) {
    ++number;
    INFO("golden.txt line " << number << ", in: " << section);
    REQUIRE(std::getline(current, line));
    REQUIRE(line == expected_line);
    if (!line.empty() && line[0] != ' ') section = line;
  }
  CHECK_FALSE(std::getline(current, line));
}
