// The caching allocator's rules, on a memory of a given size that only counts.
#include "tests/replay/pytorch_native.hpp"

#include "tests/replay/counting_memory.hpp"
#include "tests/support/catch.hpp"

using namespace apportion;
using namespace apportion::replay;

TEST_CASE("PyTorch: the size of a tensor decides the size of its segment") {
  struct Row {
    Bytes tensor;
    Bytes segment;
  };
  for (const Row& row :
       {Row{1_B, 2_MiB}, Row{1_MiB, 2_MiB}, Row{1_MiB + 1_B, 20_MiB}, Row{10_MiB - 512_B, 20_MiB},
        Row{10_MiB, 10_MiB}, Row{11_MiB, 12_MiB}, Row{33_MiB, 34_MiB}}) {
    CountingMemory memory(1_GiB);
    PytorchNative allocator(memory);
    REQUIRE(allocator.allocate(row.tensor).ok());
    CHECK(memory.asked == std::vector<Bytes>{row.segment});
  }
}

TEST_CASE("PyTorch: freed tensors stay in the cache, merge, and serve the next ones") {
  CountingMemory memory(1_GiB);
  PytorchNative allocator(memory);
  const auto a = allocator.allocate(5_MiB);
  const auto b = allocator.allocate(5_MiB);
  const auto c = allocator.allocate(5_MiB);
  REQUIRE((a.ok() && b.ok() && c.ok()));
  CHECK(*b == *a + (5_MiB).value);
  CHECK(memory.asked.size() == 1);
  allocator.free(*a);
  allocator.free(*c);
  allocator.free(*b);
  CHECK(allocator.counts().allocated == 0_B);
  CHECK(allocator.counts().reserved == 20_MiB);
  const auto whole = allocator.allocate(9_MiB + 512_KiB);
  REQUIRE(whole.ok());
  CHECK(*whole == *a);  // the three are one piece again
  CHECK(memory.asked.size() == 1);
  CHECK(memory.freed.empty());
}

TEST_CASE("PyTorch: a refusal gives unused segments back, large ones first, and then tries once more") {
  CountingMemory memory(64_MiB);
  PytorchNative allocator(memory);
  const auto kept = allocator.allocate(3_MiB);
  const auto small = allocator.allocate(4_KiB);
  const auto large = allocator.allocate(30_MiB);
  REQUIRE((kept.ok() && small.ok() && large.ok()));
  allocator.free(*small);
  allocator.free(*large);
  REQUIRE(allocator.allocate(44_MiB).ok());
  CHECK(memory.freed == std::vector<Bytes>{30_MiB, 2_MiB});
  CHECK(allocator.counts().retries == 1);
  CHECK(allocator.counts().reserved == 64_MiB);
}

TEST_CASE("PyTorch: what does not fit after the caches went is out of memory, with what was told") {
  CountingMemory memory(64_MiB);
  PytorchNative allocator(memory);
  const auto none = allocator.allocate(65_MiB);
  REQUIRE_FALSE(none.ok());
  CHECK(none.error().code == Errc::out_of_memory);
  CHECK(none.error().message.find("of 64 MiB, 64 MiB are free") != std::string::npos);
  CHECK(allocator.allocate(64_MiB).ok());  // the program can go on
}

TEST_CASE("PyTorch: the small training run fits its room only by giving caches back") {
  CountingMemory memory(512_MiB);
  PytorchNative allocator(memory);
  REQUIRE(run_steps(allocator, small_training_run(512_MiB)).ok());
  CHECK(allocator.counts().retries == 1);
  CHECK_FALSE(memory.freed.empty());
}

TEST_CASE("R6: PyTorch native cannot place 11 GiB again while 16 MiB tensors lie in the first place's half") {
  CountingMemory memory(21_GiB);
  PytorchNative allocator(memory);
  const Status ran = run_steps(allocator, fragmenting_run(21_GiB));
  REQUIRE_FALSE(ran.ok());
  CHECK(ran.error().code == Errc::out_of_memory);
  // More than half of the device is in no tensor.
  CHECK(allocator.counts().allocated < 6_GiB);
  CHECK(memory.used() == 11_GiB);
}
