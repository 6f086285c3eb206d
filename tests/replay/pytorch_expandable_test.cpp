// The rules of expandable segments, on a memory of a given size that only counts.
#include "tests/replay/pytorch_expandable.hpp"

#include "tests/replay/counting_memory.hpp"
#include "tests/support/catch.hpp"

using namespace apportion;
using namespace apportion::replay;
using Pages = std::vector<CountingMemory::Page>;

TEST_CASE("PyTorch expandable: a range of 9/8 of the device for each kind, filled in pages of 2 and 20 MiB") {
  CountingMemory memory(16_GiB, true);
  PytorchExpandable allocator(memory);
  REQUIRE(allocator.allocate(4_KiB).ok());
  CHECK(memory.reserved == std::vector<Bytes>{18_GiB});
  CHECK(memory.filled == Pages{{0_B, 2_MiB, 2_MiB}});
  REQUIRE(allocator.allocate(1_MiB + 1_B).ok());
  CHECK(memory.reserved == std::vector<Bytes>{18_GiB, round_up(18_GiB, 20_MiB)});
  CHECK(memory.filled.back() == CountingMemory::Page{0_B, 20_MiB, 20_MiB});
  // The second page is right behind the first; a tensor lies across both.
  const auto across = allocator.allocate(30_MiB);
  REQUIRE(across.ok());
  CHECK(memory.filled.back() == CountingMemory::Page{20_MiB, 20_MiB, 20_MiB});
  CHECK(memory.asked.empty());
  CHECK(allocator.segments().size() == 2);
}

TEST_CASE("PyTorch expandable: what is freed merges, is used again, and stays mapped") {
  CountingMemory memory(1_GiB, true);
  PytorchExpandable allocator(memory);
  const auto a = allocator.allocate(30_MiB);
  const auto b = allocator.allocate(30_MiB);
  const auto c = allocator.allocate(30_MiB);
  REQUIRE((a.ok() && b.ok() && c.ok()));
  allocator.free(*a);
  allocator.free(*b);
  const Bytes used = memory.used();
  const auto both = allocator.allocate(60_MiB);
  REQUIRE(both.ok());
  CHECK(*both == *a);
  CHECK(memory.used() == used);
  CHECK(memory.emptied.empty());
}

TEST_CASE("PyTorch expandable: a refusal unmaps whole free pages, wherever they lie, and then it fits") {
  CountingMemory memory(200_MiB, true);
  PytorchExpandable allocator(memory);
  const auto first = allocator.allocate(50_MiB);  // pages 0 to 2, half of the third
  const auto kept = allocator.allocate(10_MiB);   // the rest of the third
  const auto last = allocator.allocate(80_MiB);   // pages 3 to 6
  REQUIRE((first.ok() && kept.ok() && last.ok()));
  allocator.free(*first);
  const auto more = allocator.allocate(100_MiB);  // 3 pages are left, and 2 come from the first tensor
  REQUIRE(more.ok());
  CHECK(memory.emptied == Pages{{0_B, 40_MiB, {}}});
  CHECK(allocator.counts().retries == 1);
  CHECK(memory.used() == 200_MiB);
  CHECK(allocator.counts().reserved == 200_MiB);
  const auto none = allocator.allocate(20_MiB);
  REQUIRE_FALSE(none.ok());
  CHECK(none.error().code == Errc::out_of_memory);
  CHECK(none.error().message.find("of 200 MiB, 0 B are free") != std::string::npos);
}

TEST_CASE(
    "R6: PyTorch expandable places 11 GiB again although 16 MiB tensors lie in the first place's half") {
  CountingMemory memory(21_GiB, true);
  PytorchExpandable allocator(memory);
  REQUIRE(run_steps(allocator, fragmenting_run(21_GiB)).ok());
  CHECK(allocator.counts().retries == 0);
  CHECK(memory.used() == round_up(11_GiB + 5632_MiB, 20_MiB));
}

TEST_CASE("PyTorch expandable over a memory without ranges: every tensor is a block of it, freed at once") {
  CountingMemory memory(1_GiB);
  PytorchExpandable allocator(memory);
  const auto a = allocator.allocate(30_MiB + 1_B);
  REQUIRE(a.ok());
  CHECK(memory.asked == std::vector<Bytes>{30_MiB + 512_B});
  CHECK(allocator.segments().size() == 1);
  allocator.free(*a);
  CHECK(memory.freed == memory.asked);
  CHECK(allocator.counts().reserved == 0_B);
}
