// Rules 10 to 15 and 17: address ranges, mapping and access in one process.
#include <unistd.h>

#include "local.hpp"
#include "scene.hpp"
#include "tests/support/catch.hpp"

namespace apportion::conformance {
namespace {

std::size_t page() {
  return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

// What cuMemAddressReserve answers; the range is given back at once. `address` is where it was.
Answer reserved(std::size_t bytes, std::size_t alignment, CUdeviceptr wish, CUdeviceptr* address = nullptr) {
  CUdeviceptr got = 0;
  const Answer answer{driver().mem_address_reserve(&got, bytes, alignment, wish, 0)};
  if (answer.ok()) driver().mem_address_free(got, bytes);
  if (address != nullptr) *address = got;
  return answer;
}

}  // namespace

TEST_CASE("rule 10: a range's size is a multiple of the host page, not of the granularity", "[rule10]") {
  use_device();
  CHECK(reserved(3 * page(), 0, 0) == kOk);
  CHECK(reserved(3 * page() + 1, 0, 0) == kInvalidValue);
  CHECK(reserved(0, 0, 0) == kInvalidValue);
}

TEST_CASE("rule 10: a range's alignment is a power of two or 0", "[rule10]") {
  use_device();
  CUdeviceptr address = 1;
  CHECK(reserved(kChunk, 1024 * kMiB, 0, &address) == kOk);
  CHECK(address % (1024 * kMiB) == 0);
  CHECK(reserved(kChunk, 3 * page(), 0) == kInvalidValue);
}

TEST_CASE("rule 10: a wished address is a multiple of the host page, and only a wish", "[rule10]") {
  use_device();
  const Range taken;
  CUdeviceptr address = 0;
  CHECK(reserved(kChunk, 0, taken.at(), &address) == kOk);
  CHECK(address != taken.at());
  CHECK(reserved(kChunk, 0, taken.at() + 4 * kChunk + 1) == kInvalidValue);
}

TEST_CASE("rule 11: a range is not freed by another size than its own", "[rule11]") {
  use_device();
  const Range range(2 * kChunk);
  CHECK(Answer{driver().mem_address_free(range.at(), kChunk)} == kInvalidValue);
}

TEST_CASE("rule 11: a range is not freed by an address inside it", "[rule11]") {
  use_device();
  const Range range(2 * kChunk);
  CHECK(Answer{driver().mem_address_free(range.at(kChunk), kChunk)} == kInvalidValue);
}

TEST_CASE("rule 11: a range is not freed while something is mapped in it", "[rule11]") {
  use_device();
  Range range(2 * kChunk);
  const Handle handle;
  range.mapped(kChunk, handle);
  CHECK(Answer{driver().mem_address_free(range.at(), range.bytes())} == kInvalidValue);
}

TEST_CASE("rule 12: map refuses an offset other than 0", "[rule12]") {
  use_device();
  Range range(2 * kChunk);
  const Handle handle(2 * kChunk);
  CHECK(Answer{driver().mem_map(range.at(), kChunk, kChunk, handle.get(), 0)} == kInvalidValue);
}

TEST_CASE("rule 12: map refuses a part of a handle", "[rule12]") {
  use_device();
  Range range(2 * kChunk);
  const Handle handle(2 * kChunk);
  CHECK(range.map(0, kChunk, handle.get()) == kInvalidValue);
}

TEST_CASE("rule 12: map refuses more bytes than the handle has", "[rule12]") {
  use_device();
  Range range(2 * kChunk);
  const Handle handle;
  CHECK(range.map(0, 2 * kChunk, handle.get()) == kInvalidValue);
}

TEST_CASE("rule 12: map refuses a range that is not reserved", "[rule12]") {
  use_device();
  CUdeviceptr address = 0;
  {
    const Range range;
    address = range.at();
  }
  const Handle handle;
  const Answer answer{driver().mem_map(address, kChunk, 0, handle.get(), 0)};
  if (answer.ok()) driver().mem_unmap(address, kChunk);
  CHECK(answer == kInvalidValue);
}

TEST_CASE("rule 12: map refuses a range that is mapped", "[rule12]") {
  use_device();
  Range range;
  const Handle first;
  const Handle second;
  REQUIRE(range.map(0, kChunk, first.get()) == kOk);
  CHECK(range.map(0, kChunk, second.get()) == kInvalidValue);
}

// In helper processes: touching what has no access costs the process its context (rule 19).
TEST_CASE("rule 13: a fresh mapping has no access", "[rule13]") {
  Scene scene({.observer = false});
  Peer peer = scene.with_context();
  std::uint64_t handle = 0;
  std::uint64_t address = 0;
  REQUIRE(peer.create(kChunk, &handle) == kOk);
  REQUIRE(peer.reserve(kChunk, &address) == kOk);
  REQUIRE(peer.map(address, kChunk, handle) == kOk);
  CHECK(peer.touch(address) != kOk);
}

TEST_CASE("rule 13: unmapping takes the access away for the next mapping", "[rule13]") {
  Scene scene({.observer = false});
  Peer peer = scene.with_context();
  const PeerChunk chunk = peer.mapped_chunk(kChunk);
  REQUIRE(peer.touch(chunk.address) == kOk);
  REQUIRE(peer.unmap(chunk.address, kChunk) == kOk);
  REQUIRE(peer.map(chunk.address, kChunk, chunk.handle) == kOk);
  CHECK(peer.touch(chunk.address) != kOk);
}

TEST_CASE("rule 14: one handle may be mapped at two addresses, and both show the same bytes", "[rule14]") {
  use_device();
  Range here;
  Range there;
  const Handle handle;
  REQUIRE(here.map(0, kChunk, handle.get()) == kOk);
  REQUIRE(there.map(0, kChunk, handle.get()) == kOk);
  REQUIRE(here.set_access(0, kChunk) == kOk);
  REQUIRE(there.set_access(0, kChunk) == kOk);
  write_word(here.at(kChunk - 8), 0xabcdef);
  CHECK(read_word(there.at(kChunk - 8)) == 0xabcdef);
}

TEST_CASE("rule 15: set access refuses a range with a hole", "[rule15]") {
  use_device();
  Range range(3 * kChunk);
  const Handle first;
  const Handle last;
  REQUIRE(range.map(0, kChunk, first.get()) == kOk);
  REQUIRE(range.map(2 * kChunk, kChunk, last.get()) == kOk);
  CHECK(range.set_access(0, 3 * kChunk) == kInvalidValue);
}

TEST_CASE("rule 15: one set access may span several mappings", "[rule15]") {
  use_device();
  Range range(2 * kChunk);
  const Handle first;
  const Handle second;
  REQUIRE(range.map(0, kChunk, first.get()) == kOk);
  REQUIRE(range.map(kChunk, kChunk, second.get()) == kOk);
  CHECK(range.set_access(0, 2 * kChunk) == kOk);
  CHECK(access_at(range.at()) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  CHECK(access_at(range.at(kChunk)) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

TEST_CASE("rule 15: access is NONE, READ or READWRITE, as set last", "[rule15]") {
  use_device();
  Range range;
  const Handle handle;
  REQUIRE(range.map(0, kChunk, handle.get()) == kOk);
  for (const auto flags :
       {CU_MEM_ACCESS_FLAGS_PROT_READWRITE, CU_MEM_ACCESS_FLAGS_PROT_READ, CU_MEM_ACCESS_FLAGS_PROT_NONE}) {
    CHECK(range.set_access(0, kChunk, flags) == kOk);
    CHECK(access_at(range.at()) == flags);
  }
}

TEST_CASE("rule 17: unmap refuses a part of a mapping", "[rule17]") {
  use_device();
  Range range(2 * kChunk);
  const Handle handle(2 * kChunk);
  range.mapped(0, handle, 2 * kChunk);
  CHECK(range.unmap(0, kChunk) == kInvalidValue);
  CHECK(range.unmap(kChunk, kChunk) == kInvalidValue);
}

TEST_CASE("rule 17: unmap refuses a range with a hole", "[rule17]") {
  use_device();
  Range range(3 * kChunk);
  const Handle first;
  const Handle last;
  range.mapped(0, first);
  range.mapped(2 * kChunk, last);
  CHECK(range.unmap(0, 3 * kChunk) == kInvalidValue);
}

TEST_CASE("rule 17: one unmap may take several whole mappings", "[rule17]") {
  use_device();
  Range range(3 * kChunk);
  const Handle first;
  const Handle second(2 * kChunk);
  range.mapped(0, first);
  range.mapped(kChunk, second, 2 * kChunk);
  CHECK(range.unmap(0, 3 * kChunk) == kOk);
}

}  // namespace apportion::conformance
