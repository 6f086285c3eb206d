// The pool that JAX and TensorFlow take at their first operation: the best-fit-with-coalescing allocator that
// both share, with preallocation on. Public source and sequence: tests/replay/README.md. Facts only, no code
// of it.
#pragma once

#include <optional>
#include <string>

#include "tests/replay/memory.hpp"

namespace apportion::replay {

struct BfcPool {
  Bytes first_request = 4_GiB;  // what the first operation needs: the pool may not come out smaller
  double back_off = 0.9;        // after each refusal
  Bytes request_unit = 256_B;   // every smaller size tried is rounded up to it
};

// What a program wanted and what it came to. Sizes are null where it did not get that far.
struct Replayed {
  std::optional<Bytes> told_total;
  std::optional<Bytes> told_free;
  std::optional<Bytes> wanted;
  std::optional<Block> pool;  // the memory it holds at the end
  unsigned tries = 0;         // requests made, refused ones included
  std::string error;          // why it has less than it wanted; empty where it has it all
  // It has all that it wanted. A smaller pool is not ok: the program runs on, and fails later.
  [[nodiscard]] bool ok() const { return pool && wanted && pool->size >= *wanted; }
};

// What every program reads at its start: free and total, or why it could not. `memory` has been started.
[[nodiscard]] Replayed read_numbers(Memory& memory);
// Asks for what is wanted, and shrinks the wish until it is granted or smaller than the first request.
void take_bfc_pool(Memory& memory, const BfcPool& params, Replayed& replayed);

// A share of `size`, in the arithmetic of `Float`.
template <typename Float>
[[nodiscard]] Bytes share_of(Bytes size, Float share) {
  return {static_cast<std::uint64_t>(static_cast<Float>(size.value) * share)};
}

}  // namespace apportion::replay
