#include "config/open_files.hpp"

namespace apportion {
namespace {

// Sockets, pages, libraries, and what is in flight, beside one descriptor per chunk.
constexpr std::uint64_t kOtherFds = 256;

}  // namespace

Status check_open_files(const Config& config, const LoadReport& load, std::uint64_t hard_limit) {
  const std::uint64_t needed = load.pool_chunks + kOtherFds;
  if (needed <= hard_limit) return Done{};
  return Error{Errc::system, config.where("broker.chunk") + ": a pool of " +
                                 std::to_string(load.pool_chunks) + " chunks of " + to_text(load.chunk) +
                                 " needs " + std::to_string(needed) + " open files, and the hard limit is " +
                                 std::to_string(hard_limit) +
                                 ": raise it (ulimit -Hn, LimitNOFILE=), or use larger chunks"};
}

}  // namespace apportion
