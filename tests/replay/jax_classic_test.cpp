// The back-off of JAX's classic pool, on a memory of a given size that only counts.
#include "tests/replay/jax_classic.hpp"

#include <vector>

#include "tests/support/catch.hpp"

using namespace apportion;
using namespace apportion::replay;

namespace {

class FreeMemory final : public Memory {
 public:
  FreeMemory(Bytes total, Bytes free, Errc refusal = Errc::out_of_memory)
      : total_(total), free_(free), refusal_(refusal) {}
  Status start() override { return Done{}; }
  Result<Told> told() override { return Told{.free = free_, .total = total_}; }
  Result<Block> allocate(Bytes size) override {
    asked.push_back(size);
    if (size > free_) return Error{refusal_, "refused"};
    return Block{4096, size};
  }
  Status free(const Block&) override { return Done{}; }
  Status write(std::uint64_t, std::uint64_t) override { return Done{}; }
  Result<std::uint64_t> read(std::uint64_t) override { return std::uint64_t{0}; }

  std::vector<Bytes> asked;

 private:
  Bytes total_;
  Bytes free_;
  Errc refusal_;
};

}  // namespace

TEST_CASE("JAX: three quarters of the total it is told, whatever is free, rounded up to 2 MiB") {
  FreeMemory memory(18_GiB + 256_MiB, 18_GiB);
  const Replayed replayed = run_jax_classic(memory);
  CHECK(replayed.told_total == 18_GiB + 256_MiB);
  CHECK(replayed.wanted == 14016_MiB);
  CHECK(replayed.ok());
  CHECK(replayed.tries == 1);
  FreeMemory odd(5_GiB + 1_MiB, 5_GiB);
  CHECK(run_jax_classic(odd, {.pool = {.first_request = 1_GiB}}).wanted == 3842_MiB);
}

TEST_CASE("JAX: each refusal shrinks the pool by a tenth, until it fits: a smaller pool is not ok") {
  FreeMemory memory(80_GiB, 19456_MiB);
  const Replayed replayed = run_jax_classic(memory);
  REQUIRE(replayed.pool.has_value());
  CHECK(round_up(replayed.pool->size, 1_MiB) == 19281_MiB);
  CHECK(replayed.tries == 12);
  CHECK_FALSE(replayed.ok());
  CHECK(replayed.error == "refused");
  for (std::size_t i = 1; i < memory.asked.size(); ++i)
    CHECK(memory.asked[i].value % 256 == 0);
}

TEST_CASE("JAX: nothing is asked for below the first request") {
  FreeMemory memory(80_GiB, 4_GiB - 1_MiB);
  const Replayed replayed = run_jax_classic(memory);
  CHECK_FALSE(replayed.pool.has_value());
  CHECK(memory.asked.back() >= 4_GiB);
  CHECK(memory.asked.back().value * 9 / 10 < (4_GiB).value + 256);
}

TEST_CASE(
    "JAX: an error that is no lack of room ends it at once, and a first request of nothing does not hang "
    "it") {
  FreeMemory broken(80_GiB, 0_B, Errc::driver);
  CHECK(run_jax_classic(broken).tries == 1);
  FreeMemory none(80_GiB, 0_B);
  CHECK_FALSE(run_jax_classic(none, {.pool = {.first_request = 0_B}}).pool.has_value());
}
