#include "bench/library.hpp"

#include <vector>

#include "shm/bytes.hpp"

namespace apportion::bench {

Result<Library> Library::attach(const std::string& socket, const std::string& job) {
  apportion_attach_options options{};
  options.struct_size = sizeof options;
  options.socket = socket.c_str();
  options.job = job.c_str();
  Library library;
  if (apportion_attach(&options, &library.client_) != APPORTION_OK)
    return Error{Errc::not_attached, apportion_last_error()};
  return library;
}

Status Library::make_room(const Replay& trace, unsigned threads) {
  const std::uint64_t large = threads * trace.large_peak_bytes * (threads == 1 ? 5 : 8) / 4 + (256_MiB).value;
  std::vector<void*> blocks(threads * trace.small_peak_bytes * 2 / (1_MiB).value + 64);
  blocks.push_back(allocate(large, 0));
  Status made = Done{};
  for (void*& block : blocks) {
    if (block == nullptr) block = allocate((1_MiB).value, 0);
    if (block == nullptr && made.ok()) made = Error{Errc::quota, apportion_last_error()};
  }
  for (void* block : blocks)
    free(block, 0);
  return made;
}

}  // namespace apportion::bench
