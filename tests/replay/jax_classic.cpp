// tests/replay/jax_classic.hpp.
#include "tests/replay/jax_classic.hpp"

namespace apportion::replay {
namespace {

template <typename Float>
Bytes share_of(Bytes size, Float share) {
  return {static_cast<std::uint64_t>(static_cast<Float>(size.value) * share)};
}

}  // namespace

Replayed jax_classic_plan(Memory& memory, const JaxClassic& params) {
  Replayed replayed;
  auto told = memory.told();
  if (!told) {
    replayed.error = told.error().message;
    return replayed;
  }
  replayed.told_total = told->total;
  replayed.told_free = told->free;
  replayed.wanted = round_up(share_of(told->total, params.fraction), params.pool_unit);
  return replayed;
}

void jax_classic_take(Memory& memory, const JaxClassic& params, Replayed& replayed) {
  if (!replayed.wanted) return;
  Bytes size = *replayed.wanted;
  while (size >= params.first_request) {
    ++replayed.tries;
    auto block = memory.allocate(size);
    if (block) {
      replayed.pool = *block;
      return;
    }
    replayed.error = block.error().message;
    if (!no_room(block.error())) return;
    const Bytes smaller = round_up(share_of(size, params.back_off), params.request_unit);
    if (smaller >= size) return;  // rounding ate the step
    size = smaller;
  }
}

Replayed run_jax_classic(Memory& memory, const JaxClassic& params) {
  if (Status started = memory.start(); !started) {
    Replayed replayed;
    replayed.error = started.error().message;
    return replayed;
  }
  Replayed replayed = jax_classic_plan(memory, params);
  jax_classic_take(memory, params, replayed);
  return replayed;
}

}  // namespace apportion::replay
