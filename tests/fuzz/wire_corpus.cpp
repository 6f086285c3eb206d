// Writes a first corpus into the folder named: one valid message of every type for wire_fuzz (after a byte
// for its side), and valid pages for ledger_fuzz (after a byte of choices).
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "shm/job_page.hpp"
#include "shm/ledger.hpp"
#include "tests/unit/shm/sample_messages.hpp"

using namespace apportion;

namespace {

bool write_file(const std::string& path, char first, std::span<const std::byte> bytes) {
  std::ofstream file(path, std::ios::binary);
  file.put(first);
  file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  return file.good();
}

bool write_page(const std::string& path, char first, int memfd) {
  std::vector<std::byte> bytes(1 << 16);
  const ssize_t size = ::pread(memfd, bytes.data(), bytes.size(), 0);
  return size > 0 && write_file(path, first, std::span(bytes).first(static_cast<std::size_t>(size)));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: wire_corpus FOLDER\n");
    return 2;
  }
  const std::string folder = argv[1];
  bool good = true;
  for (const wire::Message& message : testing::sample_messages()) {
    const auto type = static_cast<wire::Type>(wire::header_of(message).type);
    good &= write_file(folder + "/" + wire::to_text(type), static_cast<char>(testing::sender_of(message)),
                       wire::bytes_of(message));
  }
  auto ledger = LedgerWriter::create(1, {"GPU-1", "Simulated device"}, 2, 2);
  auto job = JobPageWriter::create(1, "trainer");
  auto slabs = JobPageWriter::create(1, "sharer", 4);
  if (!ledger || !job || !slabs) return 1;
  slabs->publish({});
  slabs->put_slab(2, 0x83, 32_MiB, testing::sample_handle());
  LedgerSnapshot snapshot;
  snapshot.jobs = {testing::sample_job()};
  snapshot.sessions = {testing::sample_session()};
  for (int i = 0; i < 2; ++i) {
    ledger->publish(snapshot);
    job->publish({});
  }
  good &= write_page(folder + "/ledger", 3, ledger->fd());
  good &= write_page(folder + "/job_page", 2, job->fd());
  good &= write_page(folder + "/job_page_slabs", 2, slabs->fd());
  if (!good) std::fprintf(stderr, "wire_corpus: cannot write to %s\n", folder.c_str());
  return good ? 0 : 1;
}
