// What a session does for others while its program makes no call: the session's thread over the simulated
// driver.
#include <array>
#include <functional>
#include <thread>

#include "tests/unit/libclient/client_support.hpp"

using namespace apportion;
using namespace apportion::testing;

namespace {

wire::Reclaimed answer_to_recall(FakeBroker& broker, Bytes bytes) {
  const std::size_t before = broker.seen().reclaimed.size();
  broker.recall(bytes);
  if (!broker.wait([&](const FakeBroker::Seen& seen) { return seen.reclaimed.size() > before; }))
    FAIL("no RECLAIMED came");
  return broker.seen().reclaimed.back();
}

}  // namespace

TEST_CASE(
    "F56: a session that makes no call gives back what is idle, and the GPU's work on it is waited for") {
  FakeBroker broker;
  const Gpu gpu;
  auto client = attach(broker);
  const std::uint64_t violations = control().violations();
  // Two streams, and the default one.
  const std::array<Stream, 3> streams{gpu.handle(0), gpu.handle(1), 0};
  std::array<Address, 3> blocks{};
  for (std::size_t index = 0; index < blocks.size(); ++index)
    blocks[index] = *client->allocate(2_MiB, streams[index], false);
  const Address live = *client->allocate(2_MiB, gpu.handle(0), false);
  gpu.work_on(blocks[0], 2_MiB, 0);
  gpu.work_on(blocks[1], 2_MiB, 1);
  REQUIRE(gpu.driver.memset_d8_async(blocks[2], 1, 2 << 20, nullptr) == CUDA_SUCCESS);
  for (std::size_t index = 0; index < blocks.size(); ++index)
    REQUIRE(client->deallocate(blocks[index], streams[index]).ok());

  const wire::Reclaimed answer = answer_to_recall(broker, 64_MiB);
  CHECK(answer.bytes == (6_MiB).value);
  CHECK(answer.code == 0);
  CHECK(broker.seen().released == 3);
  CHECK(broker.leased() == 1);
  CHECK(control().violations() == violations);
  CHECK(client->stats()->synchronizes == 0);
  CHECK(usable(live, 2_MiB));
  CHECK(client->check().ok());
}

TEST_CASE("F56: beside a capture that nobody told the arena of, a recall spoils nothing") {
  FakeBroker broker;
  const Gpu gpu;
  auto client = attach(broker);
  CUstream hidden = nullptr;
  REQUIRE(gpu.driver.stream_create(&hidden, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  const Address block = *client->allocate(2_MiB, gpu.handle(0), false);
  REQUIRE(client->deallocate(block, gpu.handle(0)).ok());
  REQUIRE(gpu.driver.stream_begin_capture(hidden, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
  CHECK(answer_to_recall(broker, 2_MiB).bytes == (2_MiB).value);
  CUgraph graph = nullptr;
  CHECK(gpu.driver.stream_end_capture(hidden, &graph) == CUDA_SUCCESS);
  CHECK(graph != nullptr);
  gpu.driver.graph_destroy(graph);
  gpu.driver.stream_destroy(hidden);
}

TEST_CASE("F56: while a graph pool is bound a recall is answered with nothing, and says why") {
  FakeBroker broker;
  const Gpu gpu;
  auto client = attach(broker);
  const Address block = *client->allocate(2_MiB, gpu.handle(0), false);
  REQUIRE(client->deallocate(block, gpu.handle(0)).ok());
  const std::uint64_t pool = *client->graph_pool_begin(gpu.handle(1), 0);
  const wire::Reclaimed refused = answer_to_recall(broker, 2_MiB);
  CHECK(refused.bytes == 0);
  CHECK(refused.code == 1 + static_cast<std::uint32_t>(Errc::busy));
  REQUIRE(client->graph_pool_end(gpu.handle(1)).ok());
  CHECK(answer_to_recall(broker, 2_MiB).bytes == (2_MiB).value);
  CHECK(client->graph_pool_release(pool).ok());
}

TEST_CASE("F56: what a stream freed that is gone stays until a call of the program can synchronise") {
  FakeBroker broker;
  const Gpu gpu;
  auto client = attach(broker);
  const Address block = *client->allocate(2_MiB, gpu.handle(0), false);
  gpu.work_on(block, 2_MiB, 0);
  REQUIRE(client->deallocate(block, gpu.handle(0)).ok());
  REQUIRE(client->stream_gone(gpu.handle(0)).ok());
  const wire::Reclaimed answer = answer_to_recall(broker, 2_MiB);
  CHECK(answer.bytes == 0);
  CHECK(*client->trim_to(0_B) == 2_MiB);
}

TEST_CASE("F56: a program that works in a context of its own is not waited for behind its back") {
  FakeBroker broker;
  const DriverTable& driver = SimulatedDevice::instance().device->driver();
  CUcontext own = nullptr;
  REQUIRE(driver.ctx_create(&own, 0, 0) == CUDA_SUCCESS);  // current from here on
  {
    auto client = attach(broker);
    const std::uint64_t violations = control().violations();
    const Address block = *client->allocate(2_MiB, 0, false);
    REQUIRE(driver.memset_d8_async(block, 1, 2 << 20, nullptr) == CUDA_SUCCESS);
    REQUIRE(client->deallocate(block, 0).ok());
    const wire::Reclaimed answer = answer_to_recall(broker, 2_MiB);
    CHECK(answer.bytes == 0);
    CHECK(answer.code == 1 + static_cast<std::uint32_t>(Errc::busy));
    CHECK(control().violations() == violations);
    CHECK(*client->trim_to(0_B) == 2_MiB);
  }
  driver.ctx_destroy(own);
}

TEST_CASE("idle chunks go back by themselves after the broker's idle time, and then the session sleeps") {
  FakeBroker broker;
  broker.idle_return_ms = 4;
  const Gpu gpu;
  auto client = attach(broker);
  const std::uint64_t violations = control().violations();
  const Address live = *client->allocate(2_MiB, gpu.handle(0), false);
  for (int round = 1; round <= 2; ++round) {
    const Address block = *client->allocate(2_MiB, gpu.handle(0), false);
    gpu.work_on(block, 2_MiB, 0);
    REQUIRE(client->try_deallocate(block, gpu.handle(0)));
    REQUIRE(broker.wait([&](const FakeBroker::Seen& seen) { return seen.released == round; }));
  }
  CHECK(broker.leased() == 1);
  CHECK(control().violations() == violations);
  CHECK(usable(live, 2_MiB));
  CHECK(client->check().ok());
}

// The adversary of K4: a thread that takes memory and launches while another gives it back.
TEST_CASE("K4: memory that is given back beside allocations and launches is never under work") {
  FakeBroker broker;
  const Gpu gpu;
  auto client = attach(broker);
  const std::uint64_t violations = control().violations();
  std::atomic<bool> done{false};
  std::atomic<int> failures{0};
  std::thread launching([&] {
    CUcontext popped = nullptr;
    gpu.driver.ctx_push_current(gpu.context);
    for (int round = 0; round < 300; ++round) {
      const Result<Address> block = client->allocate(2_MiB, gpu.handle(0), false);
      if (!block || gpu.driver.memset_d8_async(*block, 1, 2 << 20, gpu.streams[0]) != CUDA_SUCCESS ||
          !client->deallocate(*block, gpu.handle(0)).ok())
        ++failures;
    }
    gpu.driver.ctx_pop_current(&popped);
    done = true;
  });
  std::uint64_t given = 0;
  while (!done)
    given += answer_to_recall(broker, 2_MiB).bytes;
  launching.join();
  INFO(given);
  CHECK(failures == 0);
  CHECK(control().violations() == violations);
  CHECK(client->check().ok());
}

namespace {

// Leases as they are, whose wait for the GPU can be left out.
class Hasty final : public ChunkSource {
 public:
  explicit Hasty(LeaseSource& leases) : leases_(leases) {}
  Result<std::uint32_t> map(Address address, std::uint32_t min, std::uint32_t want) override {
    return leases_.map(address, min, want);
  }
  Status move(std::span<const Address> from, Address to) override { return leases_.move(from, to); }
  Returned unmap(std::span<const Address> chunks) override { return leases_.unmap(chunks); }
  Status map_exact(Address address, Bytes bytes) override { return leases_.map_exact(address, bytes); }
  Status unmap_exact(Address address, Bytes bytes) override { return leases_.unmap_exact(address, bytes); }
  Status synchronize(Stream stream) override {
    before_wait();
    return hasty ? Status(Done{}) : leases_.synchronize(stream);
  }
  Status wait_for(std::span<const Stream> streams) override {
    before_wait();
    return hasty ? Status(Done{}) : leases_.wait_for(streams);
  }
  [[nodiscard]] bool one_context() const override { return true; }  // of the test
  [[nodiscard]] bool lost() const override { return leases_.lost(); }

  bool hasty = false;
  std::function<void()> before_wait = [] {};

 private:
  LeaseSource& leases_;
};

}  // namespace

TEST_CASE("K4: a launch that comes late finds its memory out of reach of the trim, or waited for") {
  FakeBroker broker;
  const Device& device = *SimulatedDevice::instance().device;
  const DriverTable& driver = device.driver();
  Result<std::unique_ptr<BrokerLink>> link = BrokerLink::open({"trainer", "test", broker.path(), false});
  REQUIRE(link);
  for (const bool hasty : {false, true}) {
    for (const Arena::Quiesce how : {Arena::Quiesce::synchronize, Arena::Quiesce::events}) {
      INFO("hasty " << hasty << ", by events " << (how == Arena::Quiesce::events));
      CUcontext context = nullptr;  // its own: work on memory that is gone breaks it for ever (rule 19)
      REQUIRE(driver.ctx_create(&context, 0, 0) == CUDA_SUCCESS);
      std::array<CUstream, 2> streams{};
      for (CUstream& stream : streams)
        REQUIRE(driver.stream_create(&stream, 0) == CUDA_SUCCESS);
      const auto handle = [&](int index) { return reinterpret_cast<std::uintptr_t>(streams[index]); };
      ArenaRanges ranges = ArenaRanges::for_device(64_MiB, FakeBroker::kChunk, 2_MiB);
      AddressRange small = *AddressRange::reserve(device, ranges.small_bytes());
      AddressRange large = *AddressRange::reserve(device, ranges.large_bytes());
      ranges.small = small.base();
      ranges.large = large.base();
      ranges.growth_chunks = 1;
      LeaseSource leases(**link, device, FakeBroker::kChunk);
      Hasty source(leases);
      source.hasty = hasty;
      Arena arena(ranges, source);
      const Address freed = *arena.allocate(2_MiB, handle(0));
      const Address other = *arena.allocate(2_MiB, handle(1));
      REQUIRE(driver.memset_d8_async(freed, 1, 2 << 20, streams[0]) == CUDA_SUCCESS);
      REQUIRE(arena.deallocate(freed, handle(0)).ok());
      REQUIRE(arena.deallocate(other, handle(1)).ok());
      // The second thread, between the free and the unmap: it allocates, and launches on what it got.
      Address late_block = 0;
      source.before_wait = [&, once = true]() mutable {
        if (!std::exchange(once, false)) return;
        std::thread late([&] {
          CUcontext popped = nullptr;
          driver.ctx_push_current(context);
          late_block = arena.try_allocate(2_MiB, handle(1));
          if (late_block != 0) driver.memset_d8_async(late_block, 1, 2 << 20, streams[1]);
          driver.ctx_pop_current(&popped);
        });
        late.join();
      };
      const std::uint64_t violations = control().violations();
      const Bytes given = arena.give(4_MiB, true, how).bytes;
      // A synchronise comes when all is out of reach; before events a block can still be had, and then stays.
      CHECK(late_block == (how == Arena::Quiesce::events ? other : 0));
      CHECK(given == (how == Arena::Quiesce::events ? 2_MiB : 4_MiB));
      CHECK((control().violations() != violations) == hasty);
      driver.ctx_destroy(context);
      CHECK(leases.unmap_all().ok());
    }
  }
}
