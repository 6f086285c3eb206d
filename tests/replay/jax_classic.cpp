// tests/replay/jax_classic.hpp.
#include "tests/replay/jax_classic.hpp"

namespace apportion::replay {

Replayed jax_classic_plan(Memory& memory, const JaxClassic& params) {
  Replayed replayed = read_numbers(memory);
  if (replayed.told_total)
    replayed.wanted = round_up(share_of(*replayed.told_total, params.fraction), params.pool_unit);
  return replayed;
}

Replayed run_jax_classic(Memory& memory, const JaxClassic& params) {
  if (Status started = memory.start(); !started) {
    Replayed replayed;
    replayed.error = started.error().message;
    return replayed;
  }
  Replayed replayed = jax_classic_plan(memory, params);
  take_bfc_pool(memory, params.pool, replayed);
  return replayed;
}

}  // namespace apportion::replay
