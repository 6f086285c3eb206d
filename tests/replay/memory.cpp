// Checking blocks: tests/replay/memory.hpp.
#include "tests/replay/memory.hpp"

#include <algorithm>

namespace apportion::replay {
namespace {

constexpr std::uint64_t kWord = sizeof(std::uint64_t);

std::uint64_t pattern(std::uint64_t tag, std::uint64_t address) {
  std::uint64_t x = tag * 0x9E3779B97F4A7C15u ^ address;  // splitmix64's finish
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// Calls visit(first byte, size) for every chunk of the block, the last one maybe shorter.
template <typename Visit>
void each_chunk(const Block& block, Bytes chunk, Visit&& visit) {
  for (std::uint64_t at = 0; at < block.size.value; at += chunk.value)
    visit(block.address + at, std::min(chunk.value, block.size.value - at));
}

}  // namespace

Result<Bytes> check_block(Memory& memory, const Block& block, Bytes chunk, std::uint64_t tag) {
  std::optional<Error> failed;
  each_chunk(block, chunk, [&](std::uint64_t first, std::uint64_t size) {
    for (const std::uint64_t address : {first, first + size - kWord}) {
      if (failed) return;
      if (Status s = memory.write(address, pattern(tag, address)); !s) failed = s.error();
    }
  });
  if (failed) return *failed;
  return check_again(memory, block, chunk, tag);
}

Result<Bytes> check_again(Memory& memory, const Block& block, Bytes chunk, std::uint64_t tag) {
  std::optional<Error> failed;
  Bytes good;
  each_chunk(block, chunk, [&](std::uint64_t first, std::uint64_t size) {
    bool same = true;
    for (const std::uint64_t address : {first, first + size - kWord}) {
      if (failed) return;
      auto word = memory.read(address);
      if (!word)
        failed = word.error();
      else
        same = same && *word == pattern(tag, address);
    }
    if (same) good += Bytes{size};
  });
  if (failed) return *failed;
  return good;
}

}  // namespace apportion::replay
