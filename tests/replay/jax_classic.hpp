// How JAX took memory when one pool was taken at the first operation: 75 % of the total it is told. Its
// public source and the sequence: tests/replay/README.md. Facts only, no code of it.
#pragma once

#include "tests/replay/bfc_pool.hpp"

namespace apportion::replay {

struct JaxClassic {
  double fraction = 0.75;   // of the total it was told (XLA_PYTHON_CLIENT_MEM_FRACTION)
  Bytes pool_unit = 2_MiB;  // the pool's size is rounded up to it
  BfcPool pool;
};

// The first half: reads free and total, and so decides what it wants. `memory` has been started. The second
// half is take_bfc_pool.
[[nodiscard]] Replayed jax_classic_plan(Memory& memory, const JaxClassic& params);
// Starts `memory` and does both.
[[nodiscard]] Replayed run_jax_classic(Memory& memory, const JaxClassic& params = {});

}  // namespace apportion::replay
