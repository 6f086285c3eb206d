// Rules 3 to 8: creating and releasing physical memory.
#include <signal.h>
#include <sys/wait.h>

#include "local.hpp"
#include "scene.hpp"
#include "simulator.hpp"
#include "tests/support/catch.hpp"

namespace apportion::conformance {
namespace {

// What cuMemCreate answers; what it made is given back at once.
Answer created(std::size_t bytes, const CUmemAllocationProp& prop, unsigned long long flags = 0) {
  CUmemGenericAllocationHandle handle = 0;
  const Answer answer{driver().mem_create(&handle, bytes, &prop, flags)};
  if (answer.ok()) driver().mem_release(handle);
  return answer;
}

int attribute(CUdevice_attribute which) {
  int value = 0;
  REQUIRE(Answer{driver().device_get_attribute(&value, which, 0)} == kOk);
  return value;
}

CUmemAllocationProp properties_of(const Handle& handle) {
  CUmemAllocationProp prop{};
  REQUIRE(Answer{driver().mem_get_allocation_properties_from_handle(&prop, handle.get())} == kOk);
  return prop;
}

}  // namespace

TEST_CASE("rule 3: create needs no context, and refuses 0 bytes", "[rule3]") {
  Scene scene({.observer = false});
  Peer peer = scene.started();
  std::uint64_t handle = 0;
  CHECK(peer.create(kChunk, &handle) == kOk);
  CHECK(peer.create(0, &handle) == kInvalidValue);
}

TEST_CASE("rule 3: create refuses a size that is no multiple of the minimum", "[rule3]") {
  use_device();
  CHECK(created(2 * kMiB + 4096, device_memory()) == kInvalidValue);
  CHECK(created(kMiB, device_memory()) == kInvalidValue);
}

TEST_CASE("rule 3: create refuses flags other than 0", "[rule3]") {
  use_device();
  CHECK(created(kChunk, device_memory(), 1) == kInvalidValue);
}

TEST_CASE("rule 4: create refuses host memory with a handle type", "[rule4]") {
  use_device();
  CUmemAllocationProp prop = device_memory();
  prop.location = {CU_MEM_LOCATION_TYPE_HOST, {0}};
  CHECK(created(kChunk, prop) == kInvalidValue);
}

TEST_CASE("rule 4: create refuses HOST_NUMA_CURRENT", "[rule4]") {
  use_device();
  CUmemAllocationProp prop = device_memory(CU_MEM_HANDLE_TYPE_NONE);
  prop.location = {CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT, {0}};
  CHECK(created(kChunk, prop) == kInvalidValue);
}

TEST_CASE("rule 5: a handle has the handle types and the RDMA flag it was created with", "[rule5]") {
  use_device();
  for (const auto types : {CU_MEM_HANDLE_TYPE_NONE, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR}) {
    const Handle handle(kChunk, device_memory(types));
    CHECK(properties_of(handle).requestedHandleTypes == types);
  }
  if (attribute(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED) == 0) return;
  for (const unsigned char rdma : {0, 1}) {
    CUmemAllocationProp prop = device_memory();
    prop.allocFlags.gpuDirectRDMACapable = rdma;
    const Handle handle(kChunk, prop);
    CHECK(int{properties_of(handle).allocFlags.gpuDirectRDMACapable} == int{rdma});
  }
}

TEST_CASE("rule 5: FABRIC without permission is NOT_PERMITTED or NOT_SUPPORTED", "[rule5]") {
  use_device();
  const Answer answer = created(kChunk, device_memory(CU_MEM_HANDLE_TYPE_FABRIC));
  if (answer == kOk) APPORTION_SKIP("this process may make fabric memory");
  const bool refused_as_documented = answer == kNotPermitted || answer == kNotSupported;
  CAPTURE(answer);
  CHECK(refused_as_documented);
}

TEST_CASE("rule 6: an exhausted device answers OUT_OF_MEMORY", "[rule6]") {
  use_device();
  std::size_t total = 0;
  REQUIRE(Answer{driver().device_total_mem(&total, 0)} == kOk);
  CHECK(created((total / kChunk + 1) * kChunk, device_memory()) == kOutOfMemory);
}

TEST_CASE("rule 6: until a dead process's memory is back, and no longer, create answers OUT_OF_MEMORY",
          "[rule6][rule38]") {
  Scene scene({.environment = {"CUDASIM_DEATH_MS=200-200"}});
  Peer heir = scene.started();
  const std::size_t most = (scene.free_bytes() * 3 / 4 / kChunk) * kChunk;
  Peer holder = scene.started();
  std::uint64_t handle = 0;
  REQUIRE(holder.create(most, &handle) == kOk);
  REQUIRE(heir.create(most, &handle) == kOutOfMemory);
  holder.kill();
  Answer last = kOutOfMemory;
  unsigned refused = 0;
  CHECK(eventually([&] {
    last = heir.create(most, &handle);
    if (last == kOutOfMemory) ++refused;
    return last != kOutOfMemory;
  }));
  CHECK(last == kOk);
  // The simulator's delay is at least 200 ms, and asking takes far less.
  if (on_simulator()) CHECK(refused > 0);
}

TEST_CASE("rule 7: fresh memory shows what its last owner wrote", "[rule7]") {
  SIMULATOR_ONLY("what a device shows is undefined; the dirty mode always shows the worst case");
  Scene scene({.devices = "1GiB", .environment = {"CUDASIM_DIRTY=1"}, .observer = false});
  Peer first = scene.with_context();
  Peer second = scene.with_context();
  // Most of the device, so that the second owner must get the first one's pages.
  constexpr std::size_t kMost = 12 * kChunk;
  constexpr std::uint64_t kSecret = 0x5ec2e75ec2e75ec2;
  const PeerChunk mine = first.mapped_chunk(kMost);
  for (const std::size_t offset : {std::size_t{0}, kMost / 2, kMost - 8})
    REQUIRE(first.write_word(mine.address + offset, kSecret) == kOk);
  REQUIRE(first.unmap(mine.address, kMost) == kOk);
  REQUIRE(first.release(mine.handle) == kOk);
  const PeerChunk theirs = second.mapped_chunk(kMost);
  for (const std::size_t offset : {std::size_t{0}, kMost / 2, kMost - 8})
    CHECK(second.word(theirs.address + offset) == kSecret);
}

TEST_CASE("rule 7: memory without a last owner is not zero either", "[rule7]") {
  SIMULATOR_ONLY("what a device shows is undefined; the dirty mode always shows the worst case");
  Scene scene({.environment = {"CUDASIM_DIRTY=1"}, .observer = false});
  Peer peer = scene.with_context();
  const PeerChunk chunk = peer.mapped_chunk(kChunk);
  CHECK(peer.word(chunk.address) != 0);
  CHECK(peer.word(chunk.address + kChunk - 8) != 0);
}

TEST_CASE("rule 8: a handle may be released while its memory is mapped, and the bytes stay", "[rule8]") {
  use_device();
  Range range;
  Handle handle;
  range.mapped(0, handle);
  write_word(range.at(), 0x1234567812345678);
  CHECK(handle.release() == kOk);
  CHECK(read_word(range.at()) == 0x1234567812345678);
  write_word(range.at(kChunk - 8), 42);
  CHECK(read_word(range.at(kChunk - 8)) == 42);
}

TEST_CASE("rule 8: the simulator aborts at a double release in strict mode", "[rule8]") {
  SIMULATOR_ONLY("a double release is undefined");
  Scene scene({.environment = {"CUDASIM_STRICT=1"}, .observer = false});
  Peer peer = scene.started();
  std::uint64_t handle = 0;
  REQUIRE(peer.create(kChunk, &handle) == kOk);
  REQUIRE(peer.release(handle) == kOk);
  REQUIRE(peer.release(handle) == kDied);
  const int status = peer.wait();
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGABRT);
}

}  // namespace apportion::conformance
