// tests/replay/tensorflow_greedy.hpp.
#include "tests/replay/tensorflow_greedy.hpp"

namespace apportion::replay {
namespace {

constexpr Bytes kLittleFree = 2_GiB;  // below this, the same is kept on every device

}  // namespace

Bytes tensorflow_reserve(Bytes free, int compute_major) {
  if (free < kLittleFree) return 225_MiB;
  if (compute_major <= 6) return 500_MiB;
  if (compute_major == 7) return 1050_MiB;
  if (compute_major == 8) return 1536_MiB;
  return 1800_MiB;
}

Replayed tensorflow_plan(Memory& memory, const TensorflowGreedy& params) {
  Replayed replayed = read_numbers(memory);
  if (!replayed.told_free) return replayed;
  const Bytes reserve = tensorflow_reserve(*replayed.told_free, params.compute_major);
  replayed.wanted = saturating_sub(*replayed.told_free, reserve);
  if (*replayed.wanted < params.pool.first_request)
    replayed.error = to_text(*replayed.told_free) + " are free, and " + to_text(reserve) +
                     " of them are kept for libraries: the first operation does not fit";
  return replayed;
}

}  // namespace apportion::replay
