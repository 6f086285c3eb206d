// The client and work that the GPU has not done yet: streams are asynchronous on the simulator as on a
// device, and its pending-work check reports any unmap under work that may still run.
#include <array>

#include "tests/unit/libclient/client_support.hpp"

using namespace apportion;
using namespace apportion::testing;

TEST_CASE("K4: trim waits for the GPU before it unmaps what was freed under it") {
  FakeBroker broker;
  const Gpu gpu;
  auto client = attach(broker);
  const std::uint64_t violations = control().violations();
  const Address block = *client->allocate(4_MiB, gpu.handle(0), false);
  gpu.work_on(block, 4_MiB, 0);
  REQUIRE(client->deallocate(block, gpu.handle(0)).ok());
  CHECK(*client->trim_to(0_B) == 4_MiB);
  CHECK(control().violations() == violations);
}

TEST_CASE("K4: moving idle chunks and detaching wait for the GPU too") {
  FakeBroker broker(4);
  const Gpu gpu;
  auto client = attach(broker);
  const std::uint64_t violations = control().violations();
  std::array<Address, 4> blocks{};
  for (Address& block : blocks)
    block = *client->allocate(2_MiB, gpu.handle(0), false);
  for (const Address block : blocks)
    gpu.work_on(block, 2_MiB, 0);
  REQUIRE(client->deallocate(blocks[0], gpu.handle(0)).ok());
  REQUIRE(client->deallocate(blocks[2], gpu.handle(0)).ok());
  const Result<Address> moved = client->allocate(4_MiB, gpu.handle(0), false);
  REQUIRE(moved);
  CHECK(client->stats()->chunks_moved == 2);
  gpu.work_on(*moved, 4_MiB, 1);
  CHECK(client->detach().ok());
  CHECK(control().violations() == violations);
}

TEST_CASE("another stream gets a freed block only when the GPU has passed the free") {
  FakeBroker broker(1);
  const Gpu gpu;
  auto client = attach(broker);
  const Address block = *client->allocate(2_MiB, gpu.handle(0), false);
  gpu.work_on(block, 2_MiB, 0);
  REQUIRE(client->deallocate(block, gpu.handle(0)).ok());
  CHECK(gpu.busy(0));
  CHECK(*client->allocate(2_MiB, gpu.handle(1), false) == block);
  CHECK(!gpu.busy(0));
}

TEST_CASE("beside a capture an event on another stream is waited for, and the capture stays whole") {
  FakeBroker broker(2);
  const Gpu gpu;
  auto client = attach(broker);
  const Address first = *client->allocate(2_MiB, gpu.handle(0), false);
  REQUIRE(client->deallocate(first, gpu.handle(0)).ok());
  REQUIRE(gpu.driver.stream_begin_capture(gpu.streams[1], CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
  const Result<Address> fresh = client->allocate(2_MiB, gpu.handle(1), false);
  REQUIRE(fresh);
  CHECK(*fresh == first);
  CHECK(client->stats()->events == 1);
  CHECK(client->check().ok());
  CUgraph graph = nullptr;
  CHECK(gpu.driver.stream_end_capture(gpu.streams[1], &graph) == CUDA_SUCCESS);
  CHECK(graph != nullptr);
  gpu.driver.graph_destroy(graph);
  CHECK(client->detach().ok());
}

TEST_CASE(
    "where only a synchronise would do, a captured stream gets new memory, and its capture stays whole") {
  FakeBroker broker(2);
  const Gpu gpu;
  auto client = attach(broker);
  const Address first = *client->allocate(2_MiB, 0, false);
  REQUIRE(client->deallocate(first, 0).ok());
  REQUIRE(gpu.driver.stream_begin_capture(gpu.streams[1], CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
  const Result<Address> fresh = client->allocate(2_MiB, gpu.handle(1), false);
  REQUIRE(fresh);
  CHECK(*fresh != first);
  CUgraph graph = nullptr;
  CHECK(gpu.driver.stream_end_capture(gpu.streams[1], &graph) == CUDA_SUCCESS);
  CHECK(graph != nullptr);
  gpu.driver.graph_destroy(graph);
  CHECK(*client->trim_to(0_B) == 2_MiB);
  CHECK(client->detach().ok());
}

// cuda.h: cuStreamIsCapturing of the legacy stream answers CAPTURE_IMPLICIT then.
TEST_CASE("trim and detach answer busy while a blocking stream is captured, and the capture stays whole") {
  FakeBroker broker(2);
  const Gpu gpu;
  auto client = attach(broker);
  const Address block = *client->allocate(2_MiB, gpu.handle(0), false);
  REQUIRE(client->deallocate(block, gpu.handle(0)).ok());
  REQUIRE(gpu.driver.stream_begin_capture(gpu.streams[1], CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
  CHECK(client->trim_to(0_B).error().code == Errc::busy);
  CHECK(client->detach().error().code == Errc::busy);
  CHECK(client->check().ok());
  CUgraph graph = nullptr;
  CHECK(gpu.driver.stream_end_capture(gpu.streams[1], &graph) == CUDA_SUCCESS);
  gpu.driver.graph_destroy(graph);
  CHECK(*client->trim_to(0_B) == 2_MiB);
  CHECK(client->detach().ok());
}

// With a graph pool, a capture is known without asking the driver: a non-blocking stream's too.
TEST_CASE(
    "under a graph pool the capture of a non-blocking stream stays whole, whatever others do meanwhile") {
  FakeBroker broker(4);
  const Gpu gpu;
  auto client = attach(broker);
  CUstream stream = nullptr;
  REQUIRE(gpu.driver.stream_create(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  const auto handle = reinterpret_cast<std::uintptr_t>(stream);
  const Address old = *client->allocate(2_MiB, 0, false);
  REQUIRE(client->deallocate(old, 0).ok());
  const std::uint64_t pool = *client->graph_pool_begin(handle, 0);
  REQUIRE(gpu.driver.stream_begin_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
  const Address block = *client->allocate(2_MiB, handle, false);
  REQUIRE(client->deallocate(block, handle).ok());
  CHECK(client->trim_to(0_B).error().code == Errc::busy);
  CHECK(*client->allocate(2_MiB, gpu.handle(1), false) != block);
  CUgraph graph = nullptr;
  CHECK(gpu.driver.stream_end_capture(stream, &graph) == CUDA_SUCCESS);
  CHECK(graph != nullptr);
  REQUIRE(client->graph_pool_end(handle).ok());
  CHECK(*client->trim_to(0_B) == 2_MiB);  // the old block's; not the graph's
  CHECK(usable(block, 2_MiB));
  gpu.driver.graph_destroy(graph);
  REQUIRE(client->graph_pool_release(pool).ok());
  CHECK(*client->trim_to(0_B) == 2_MiB);
  CHECK(client->stream_gone(handle).ok());
  gpu.driver.stream_destroy(stream);
  CHECK(client->detach().ok());
}

TEST_CASE("another stream waits for an event on the one that freed, not for the context") {
  FakeBroker broker(2);
  const Gpu gpu;
  auto client = attach(broker);
  const Address freed = *client->allocate(2_MiB, gpu.handle(0), false);
  const Address busy = *client->allocate(2_MiB, gpu.handle(1), false);
  gpu.work_on(freed, 2_MiB, 0);
  gpu.work_on(busy, 2_MiB, 1);
  REQUIRE(client->deallocate(freed, gpu.handle(0)).ok());
  CHECK(*client->allocate(2_MiB, gpu.handle(1), false) == freed);
  CHECK(!gpu.busy(0));
  CHECK(client->stats()->events == 1);
  CHECK(client->stats()->synchronizes == 0);
}

TEST_CASE(
    "a capturing stream has no event: what it freed before is not waited for, and its capture stays whole") {
  FakeBroker broker(2);
  const Gpu gpu;
  auto client = attach(broker);
  const Address block = *client->allocate(2_MiB, gpu.handle(0), false);
  REQUIRE(client->deallocate(block, gpu.handle(0)).ok());
  REQUIRE(gpu.driver.stream_begin_capture(gpu.streams[0], CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
  CHECK(*client->allocate(2_MiB, gpu.handle(1), false) != block);
  CUgraph graph = nullptr;
  CHECK(gpu.driver.stream_end_capture(gpu.streams[0], &graph) == CUDA_SUCCESS);
  CHECK(graph != nullptr);
  gpu.driver.graph_destroy(graph);
  CHECK(client->check().ok());
}
