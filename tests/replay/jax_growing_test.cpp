// Prefix and growth of the newest JAX, on a memory of a given size that only counts.
#include "tests/replay/jax_growing.hpp"

#include "tests/replay/counting_memory.hpp"
#include "tests/support/catch.hpp"

using namespace apportion;
using namespace apportion::replay;
using Pages = std::vector<CountingMemory::Page>;

TEST_CASE("JAX 0.75+: one range of the whole device, a prefix of 75 % in one handle, then steps of 64 MiB") {
  CountingMemory memory(8_GiB, true);
  JaxGrowing jax(memory, {.growth = 100_MiB});
  CHECK(jax.plan().wanted == 6_GiB + 128_MiB);
  jax.take();
  CHECK(memory.reserved == std::vector<Bytes>{8_GiB});
  CHECK(memory.filled ==
        Pages{{0_B, 6_GiB, 6_GiB}, {6_GiB, 64_MiB, 64_MiB}, {6_GiB + 64_MiB, 64_MiB, 64_MiB}});
  REQUIRE(jax.blocks().size() == 1);
  CHECK(jax.blocks().front().size == 6_GiB + 128_MiB);
  CHECK(jax.error().empty());
}

TEST_CASE("JAX 0.75+: a prefix that does not fit whole is not taken in part") {
  CountingMemory memory(8_GiB, true);
  memory.others_take(2_GiB + 1_B);
  JaxGrowing jax(memory, {.growth = 64_MiB});
  CHECK(jax.plan().wanted == 6_GiB + 64_MiB);
  jax.take();
  CHECK(jax.blocks().empty());
  CHECK(jax.tries() == 1);
  CHECK(jax.error() == "full");
}

TEST_CASE("JAX 0.75+: it stops growing when less than a step is free, and keeps what it has") {
  CountingMemory memory(8_GiB, true);
  memory.others_take(1_GiB + 876_MiB);  // 148 MiB are left beside the prefix
  JaxGrowing jax(memory, {.growth = 1_GiB});
  static_cast<void>(jax.plan());
  jax.take();
  CHECK(memory.filled.size() == 3);
  CHECK(jax.tries() == 3);  // the step that does not fit is not asked for
  CHECK(jax.blocks().front().size == 6_GiB + 128_MiB);
  CHECK(jax.error() == "the pool cannot grow by 64 MiB: 20 MiB are free");
}

TEST_CASE("JAX 0.75+ over a memory without ranges: prefix and steps are blocks of it") {
  CountingMemory memory(8_GiB);
  JaxGrowing jax(memory, {.growth = 128_MiB});
  static_cast<void>(jax.plan());
  jax.take();
  CHECK(memory.asked == std::vector<Bytes>{6_GiB, 64_MiB, 64_MiB});
  CHECK(jax.blocks().size() == 3);
}
