// How JAX took memory when one pool was taken at the first operation: XLA's best-fit-with-coalescing
// allocator with preallocation on. Its public source and the sequence: tests/replay/README.md. Facts only, no
// code of it.
#pragma once

#include <optional>
#include <string>

#include "tests/replay/memory.hpp"

namespace apportion::replay {

struct JaxClassic {
  double fraction = 0.75;       // of the total it was told (XLA_PYTHON_CLIENT_MEM_FRACTION)
  Bytes first_request = 4_GiB;  // what the first operation needs: the pool may not come out smaller
  double back_off = 0.9;        // after each refusal
  Bytes pool_unit = 2_MiB;      // the pool's size is rounded up to it
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

// The first half: reads free and total, and so decides what it wants. `memory` has been started.
[[nodiscard]] Replayed jax_classic_plan(Memory& memory, const JaxClassic& params);
// The second half: asks, and shrinks its wish until it is granted or smaller than the first request.
void jax_classic_take(Memory& memory, const JaxClassic& params, Replayed& replayed);
// Starts `memory` and does both.
[[nodiscard]] Replayed run_jax_classic(Memory& memory, const JaxClassic& params = {});

}  // namespace apportion::replay
