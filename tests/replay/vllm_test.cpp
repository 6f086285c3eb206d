// How vLLM sizes its cache, and what neighbours do to that, on a memory of a given size that only counts.
#include "tests/replay/vllm.hpp"

#include "tests/replay/counting_memory.hpp"
#include "tests/support/catch.hpp"

using namespace apportion;
using namespace apportion::replay;

namespace {

constexpr VllmParams kHalf{.utilization = 0.45, .weights = 4_GiB, .activations = 1_GiB};
constexpr std::int64_t kGib = std::int64_t{1} << 30;

}  // namespace

TEST_CASE("vLLM alone: the cache is its share without weights and activations") {
  CountingMemory memory(20_GiB);
  Vllm vllm(memory, kHalf);
  CHECK(vllm.begin().wanted == 9_GiB);
  vllm.load();
  vllm.profile();
  CHECK(vllm.cache_bytes() == 4 * kGib);
  CHECK(memory.used() == 4_GiB);  // the activations went back
  vllm.take_cache();
  CHECK(vllm.error().empty());
  CHECK(memory.used() == 8_GiB);
}

TEST_CASE("vLLM: what a neighbour takes while it profiles is taken for its own libraries'") {
  CountingMemory memory(20_GiB);
  Vllm vllm(memory, kHalf);
  static_cast<void>(vllm.begin());
  vllm.load();
  memory.others_take(3_GiB);
  vllm.profile();
  CHECK(vllm.cache_bytes() == 1 * kGib);
}

TEST_CASE("vLLM: a neighbour that takes more than there was leaves no cache, and it ends") {
  CountingMemory memory(20_GiB);
  Vllm vllm(memory, kHalf);
  static_cast<void>(vllm.begin());
  vllm.load();
  memory.others_take(8_GiB);
  vllm.profile();
  CHECK(vllm.cache_bytes() == -4 * kGib);
  CHECK(vllm.error() == "no memory is left for the cache");
  vllm.take_cache();
  CHECK(memory.used() == 12_GiB);
}

TEST_CASE("vLLM: a neighbour that gives memory back while it profiles ends it") {
  CountingMemory memory(20_GiB);
  memory.others_take(8_GiB);
  Vllm vllm(memory, kHalf);
  static_cast<void>(vllm.begin());
  vllm.load();
  memory.others_free(8_GiB);
  vllm.profile();
  CHECK_FALSE(vllm.cache_bytes().has_value());
  CHECK(vllm.error().find("others gave memory back meanwhile") != std::string::npos);
}

TEST_CASE("vLLM: without its share free at the start it does not start") {
  CountingMemory memory(20_GiB);
  memory.others_take(12_GiB);
  Vllm vllm(memory, kHalf);
  CHECK(vllm.begin().error == "of 20 GiB, 8 GiB are free at the start, less than the wanted 9 GiB");
  vllm.load();
  CHECK(memory.used() == 12_GiB);
}
