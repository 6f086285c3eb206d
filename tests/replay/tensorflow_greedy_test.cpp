// What TensorFlow wants of what is free, on a memory of a given size that only counts.
#include "tests/replay/tensorflow_greedy.hpp"

#include "tests/replay/counting_memory.hpp"
#include "tests/support/catch.hpp"

using namespace apportion;
using namespace apportion::replay;

TEST_CASE("TensorFlow: what it keeps for libraries depends on what is free and on the device") {
  struct Row {
    Bytes free;
    int compute_major;
    Bytes kept;
  };
  for (const Row& row : {Row{2_GiB - 1_B, 9, 225_MiB}, Row{2_GiB, 6, 500_MiB}, Row{80_GiB, 7, 1050_MiB},
                         Row{80_GiB, 8, 1536_MiB}, Row{80_GiB, 9, 1800_MiB}})
    CHECK(tensorflow_reserve(row.free, row.compute_major) == row.kept);
}

TEST_CASE("TensorFlow: the first takes all that is free but for that, the second what that left") {
  CountingMemory memory(80_GiB);
  const TensorflowGreedy params{.pool = {.first_request = 256_MiB}};
  Replayed first = tensorflow_plan(memory, params);
  CHECK(first.wanted == 80_GiB - 1536_MiB);
  take_bfc_pool(memory, params.pool, first);
  CHECK(first.ok());
  Replayed second = tensorflow_plan(memory, params);
  CHECK(second.wanted == 1536_MiB - 225_MiB);
  take_bfc_pool(memory, params.pool, second);
  CHECK(second.ok());
  const Replayed third = tensorflow_plan(memory, params);  // 225 MiB are free
  CHECK(third.wanted == 0_B);
  CHECK(third.error.find("225 MiB are free") == 0);
}

TEST_CASE("TensorFlow: what went since it read its numbers makes its pool smaller, a tenth at a time") {
  CountingMemory memory(10_GiB);
  const TensorflowGreedy params{.pool = {.first_request = 1_GiB}};
  Replayed replayed = tensorflow_plan(memory, params);
  memory.others_take(5_GiB);
  take_bfc_pool(memory, params.pool, replayed);
  REQUIRE(replayed.pool.has_value());
  CHECK_FALSE(replayed.ok());
  CHECK(replayed.tries == 7);  // 8.5 GiB x 0.9^5 = 5.02 GiB does not fit, x 0.9^6 does
  CHECK(memory.asked.back() <= 5_GiB);
}
