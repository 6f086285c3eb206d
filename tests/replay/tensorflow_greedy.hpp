// How TensorFlow takes memory by default: at its start it reads what is free, keeps a little of that for
// libraries, and takes all the rest as one pool at the first operation. It never gives any back. Its public
// source and the sequence: tests/replay/README.md. Facts only, no code of it.
#pragma once

#include "tests/replay/bfc_pool.hpp"

namespace apportion::replay {

struct TensorflowGreedy {
  int compute_major = 8;  // of the device: newer ones keep more for libraries
  BfcPool pool;
};

// What is kept out of the pool, of `free` bytes.
[[nodiscard]] Bytes tensorflow_reserve(Bytes free, int compute_major);
// The first half: reads what is free, and so decides what it wants. `memory` has been started. The second
// half is take_bfc_pool.
[[nodiscard]] Replayed tensorflow_plan(Memory& memory, const TensorflowGreedy& params);

}  // namespace apportion::replay
