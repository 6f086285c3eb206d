// tests/replay/bfc_pool.hpp.
#include "tests/replay/bfc_pool.hpp"

namespace apportion::replay {

Replayed read_numbers(Memory& memory) {
  Replayed replayed;
  auto told = memory.told();
  if (!told) {
    replayed.error = told.error().message;
    return replayed;
  }
  replayed.told_total = told->total;
  replayed.told_free = told->free;
  return replayed;
}

void take_bfc_pool(Memory& memory, const BfcPool& params, Replayed& replayed) {
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

}  // namespace apportion::replay
