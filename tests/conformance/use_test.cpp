// Rules 18 and 19: the device still works on what the host takes away, and what that costs.
#include "driver.hpp"
#include "scene.hpp"
#include "simulator.hpp"
#include "tests/support/catch.hpp"

namespace apportion::conformance {

TEST_CASE("rule 18: unmap does not wait for the work on the range, and the simulator reports it",
          "[rule18]") {
  SIMULATOR_ONLY("what a device does then is undefined; tests/gpu/ looks at it");
  Scene scene({.observer = false});
  Peer peer = scene.with_context();
  const PeerChunk chunk = peer.mapped_chunk(kChunk);
  const SimulatorControl control(scene.folder());
  const std::uint64_t reported = control->violations;
  REQUIRE(peer.call(Op::copy_async, {chunk.address, chunk.address + kChunk / 2, 4096}) == kOk);
  CHECK(peer.unmap(chunk.address, kChunk) == kOk);
  CHECK(control->violations == reported + 1);
}

TEST_CASE("after a synchronise, unmap and release are no violation (rule 18 the other way)", "[order]") {
  SIMULATOR_ONLY("what a device does then is undefined; tests/gpu/ looks at it");
  Scene scene({.observer = false});
  Peer peer = scene.with_context();
  const PeerChunk chunk = peer.mapped_chunk(kChunk);
  const SimulatorControl control(scene.folder());
  REQUIRE(peer.call(Op::copy_async, {chunk.address, chunk.address + kChunk / 2, 4096}) == kOk);
  REQUIRE(peer.synchronize() == kOk);
  CHECK(peer.unmap(chunk.address, kChunk) == kOk);
  CHECK(peer.release(chunk.handle) == kOk);
  CHECK(control->violations == 0);
}

namespace {

// Every later call of a context with error 700 answers 700.
void check_sticky(Peer& peer) {
  std::size_t free = 0;
  std::uint64_t value = 0;
  CHECK(peer.synchronize() == kIllegalAddress);
  CHECK(peer.mem_info(&free) == kIllegalAddress);
  CHECK(peer.mem_alloc(kChunk, &value) == kIllegalAddress);
  CHECK(peer.synchronize() == kIllegalAddress);
}

}  // namespace

TEST_CASE("rule 19: use after unmap is error 700 for every later call, and for no other process",
          "[rule19]") {
  Scene scene({.observer = false});
  Peer bystander = scene.with_context();
  const PeerChunk theirs = bystander.mapped_chunk(kChunk);
  Peer peer = scene.with_context();
  const PeerChunk chunk = peer.mapped_chunk(kChunk);
  REQUIRE(peer.touch(chunk.address) == kOk);
  REQUIRE(peer.unmap(chunk.address, kChunk) == kOk);
  CHECK(peer.touch(chunk.address) == kIllegalAddress);
  check_sticky(peer);
  CHECK(bystander.touch(theirs.address) == kOk);
  CHECK(bystander.synchronize() == kOk);
}

TEST_CASE("rule 19: use without access is error 700 for every later call", "[rule19]") {
  Scene scene({.observer = false});
  Peer peer = scene.with_context();
  const PeerChunk chunk = peer.mapped_chunk(kChunk);
  REQUIRE(peer.set_access(chunk.address, kChunk, CU_MEM_ACCESS_FLAGS_PROT_NONE) == kOk);
  CHECK(peer.touch(chunk.address) == kIllegalAddress);
  check_sticky(peer);
}

}  // namespace apportion::conformance
