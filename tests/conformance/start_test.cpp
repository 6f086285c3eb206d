// Rules 1 and 2: starting, and what a device says about sizes.
#include "local.hpp"
#include "scene.hpp"
#include "tests/support/catch.hpp"

namespace apportion::conformance {

TEST_CASE("rule 1: before cuInit every call answers NOT_INITIALIZED", "[rule1]") {
  Scene scene({.observer = false});
  Peer peer = scene.peer();
  std::uint64_t value = 0;
  std::size_t free = 0;
  CHECK(peer.device_count() == kNotInitialized);
  CHECK(peer.create(kChunk, &value) == kNotInitialized);
  CHECK(peer.reserve(kChunk, &value) == kNotInitialized);
  CHECK(peer.context() == kNotInitialized);
  CHECK(peer.mem_info(&free) == kNotInitialized);
  CHECK(peer.mem_alloc(kChunk, &value) == kNotInitialized);
}

TEST_CASE("rule 2: minimum and recommended granularity of device memory are 2 MiB", "[rule2]") {
  use_device();
  const CUmemAllocationProp prop = device_memory();
  std::size_t minimum = 0;
  std::size_t recommended = 0;
  REQUIRE(Answer{driver().mem_get_allocation_granularity(&minimum, &prop,
                                                         CU_MEM_ALLOC_GRANULARITY_MINIMUM)} == kOk);
  REQUIRE(Answer{driver().mem_get_allocation_granularity(&recommended, &prop,
                                                         CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)} == kOk);
  CHECK(minimum == 2 * kMiB);
  CHECK(recommended == 2 * kMiB);
}

TEST_CASE("rule 2: granularity of memory that cannot be asked for is refused", "[rule2]") {
  use_device();
  std::size_t bytes = 0;
  CUmemAllocationProp no_such_type = device_memory();
  no_such_type.type = CU_MEM_ALLOCATION_TYPE_INVALID;
  CHECK(Answer{driver().mem_get_allocation_granularity(&bytes, &no_such_type,
                                                       CU_MEM_ALLOC_GRANULARITY_MINIMUM)} == kInvalidValue);
  CUmemAllocationProp no_such_place = device_memory();
  no_such_place.location.type = CU_MEM_LOCATION_TYPE_INVALID;
  CHECK(Answer{driver().mem_get_allocation_granularity(&bytes, &no_such_place,
                                                       CU_MEM_ALLOC_GRANULARITY_MINIMUM)} == kInvalidValue);
}

}  // namespace apportion::conformance
