// The client against a broker that behaves: attach, growth, what is told, reports, threads, contexts, a
// thousand sessions.
#include <array>
#include <thread>

#include "tests/unit/libclient/client_support.hpp"

using namespace apportion;
using namespace apportion::testing;

// What the allocator of the host may map meanwhile: an arena more; a sanitizer's keeps what was freed a
// while.
#ifdef __SANITIZE_ADDRESS__
constexpr std::size_t kHostMappings = 200;
#else
constexpr std::size_t kHostMappings = 4;
#endif

TEST_CASE("a client attaches, allocates, uses, frees, trims and detaches") {
  FakeBroker broker;
  const std::uint64_t before = referenced();
  {
    auto client = attach(broker, true);
    CHECK(broker.seen().job == "trainer");
    CHECK(broker.seen().label == "test");
    CHECK(broker.seen().hello_flags == wire::Hello::kReclaimable);
    const Address block = must_allocate(*client, 5_MiB);
    CHECK(usable(block, 5_MiB));
    CHECK(broker.wait([](const auto& seen) { return seen.acked == 3; }));
    CHECK(broker.leased() == 3);
    CHECK(client->check().ok());
    REQUIRE(client->deallocate(block, 0).ok());
    CHECK(*client->trim_to(0_B) == 6_MiB);
    CHECK(broker.seen().released == 3);
    CHECK(broker.leased() == 0);
    must_allocate(*client, 1_KiB);
    CHECK(client->detach().ok());
    CHECK(broker.seen().detaches == 1);
  }
  CHECK(referenced() == before);
}

TEST_CASE("what a program is told comes from the job page, by what it promised") {
  FakeBroker broker(64);
  auto fixed = attach(broker);
  auto elastic = attach(broker, true);
  must_allocate(*fixed, 10_MiB);
  CHECK(fixed->info()->total_bytes == (64_MiB).value);
  CHECK(fixed->info()->free_bytes == (54_MiB).value);
  CHECK(elastic->info()->total_bytes == (128_MiB).value);
  CHECK(elastic->info()->free_bytes == (118_MiB).value);
  CHECK(std::string(fixed->info()->job) == "trainer");
  CHECK(fixed->info()->chunk_bytes == (2_MiB).value);
  CHECK(fixed->info()->simulated == 1);
}

TEST_CASE("growth is one message, whatever the block's size") {
  FakeBroker broker(200);
  auto client = attach(broker);
  must_allocate(*client, 300_MiB);
  CHECK(broker.seen().asked ==
        std::vector<std::pair<std::uint64_t, std::uint64_t>>{{300ULL << 20, 300ULL << 20}});
}

TEST_CASE("a grant in parts is mapped and acknowledged part by part") {
  FakeBroker broker(200);
  broker.part_chunks = 7;
  auto client = attach(broker);
  const Address block = must_allocate(*client, 100_MiB);
  CHECK(usable(block, 100_MiB));
  CHECK(broker.wait([](const auto& seen) { return seen.acked == 50; }));
}

TEST_CASE("a refusal reaches the caller with the broker's words, and the session goes on") {
  FakeBroker broker(4);
  auto client = attach(broker);
  const Result<Address> refused = client->allocate(10_MiB, 0, false);
  REQUIRE(!refused);
  CHECK(refused.error().code == Errc::quota);
  CHECK(refused.error().message == "job trainer: asked for more than its limit");
  CHECK(usable(must_allocate(*client, 8_MiB), 8_MiB));
  CHECK(client->check().ok());
}

TEST_CASE("an exact block is one lease of exactly its size, given back when it is freed") {
  FakeBroker broker;
  auto client = attach(broker);
  const Address block = must_allocate(*client, 7_MiB, true);
  CHECK(usable(block, 7_MiB));
  CHECK(broker.seen().asked.back().second == 8ULL << 20);
  CHECK(broker.leased() == 1);
  CHECK(client->deallocate(block, 0).ok());
  CHECK(broker.leased() == 0);
}

TEST_CASE("a broker that is gone leaves memory usable and refuses more with one clear line") {
  auto broker = std::make_unique<FakeBroker>();
  auto client = attach(*broker);
  const Address block = must_allocate(*client, 4_MiB);
  broker->hang_up_on_request = true;
  const Result<Address> failed = client->allocate(8_MiB, 0, false);
  REQUIRE(!failed);
  CHECK(failed.error().code == Errc::disconnected);
  CHECK(failed.error().message.find(broker->path()) != std::string::npos);
  CHECK(usable(block, 4_MiB));
  REQUIRE(client->deallocate(block, 0).ok());
  CHECK(must_allocate(*client, 3_MiB) == block);
  REQUIRE(client->deallocate(block, 0).ok());
  CHECK(*client->trim_to(0_B) == 4_MiB);  // unmapped here, whoever books it
  CHECK(client->allocate(1_MiB, 0, false).error().code == Errc::disconnected);
}

TEST_CASE("a refused HELLO reaches the caller in the broker's words") {
  FakeBroker broker;
  broker.refuse_hello = true;
  const auto refused = Client::attach({"nobody", "", broker.path(), false});
  REQUIRE(!refused);
  CHECK(refused.error().code == Errc::not_found);
  CHECK(refused.error().message == "there is no job \"nobody\" in apportion.toml");
}

TEST_CASE("F19: a broker of another major is refused by name") {
  FakeBroker broker;
  broker.welcome_major = 9;
  const auto refused = Client::attach({"", "", broker.path(), false});
  REQUIRE(!refused);
  CHECK(refused.error().code == Errc::protocol);
  CHECK(refused.error().message.find('9') != std::string::npos);
}

TEST_CASE("a job name that does not fit is refused, not cut") {
  FakeBroker broker;
  const auto refused = Client::attach({std::string(64, 'j'), "", broker.path(), false});
  REQUIRE(!refused);
  CHECK(refused.error().code == Errc::invalid);
  CHECK(broker.seen().hellos == 0);
}

TEST_CASE("what the broker asks back during a request is given back after it, if it is idle") {
  FakeBroker broker;
  auto client = attach(broker);
  const Address idle = must_allocate(*client, 1_MiB);  // in the small range
  REQUIRE(client->deallocate(idle, 0).ok());
  broker.reclaim_first = true;
  const Address big = must_allocate(*client, 8_MiB);
  REQUIRE(client->deallocate(big, 0).ok());
  must_allocate(*client, 12_MiB);
  CHECK(client->check().ok());
  CHECK(client->stats()->pool_bytes == (12_MiB).value);
  REQUIRE(broker.wait([](const FakeBroker::Seen& seen) { return seen.reclaimed.size() == 2; }));
  const std::vector<wire::Reclaimed> answers = broker.seen().reclaimed;
  CHECK(answers[0].bytes == 0);  // nothing was idle then
  CHECK(answers[0].code == 0);
}

TEST_CASE("F56: a recall leaves what was reserved to a session that did not offer it, and says so") {
  for (const bool reclaimable : {false, true}) {
    FakeBroker broker;
    auto client = attach(broker, reclaimable);
    REQUIRE(client->reserve(8_MiB).ok());
    broker.reclaim_first = true;
    must_allocate(*client, 2_MiB, true);  // an exchange, in which RECLAIM comes
    REQUIRE(broker.wait([](const FakeBroker::Seen& seen) { return seen.reclaimed.size() == 1; }));
    const wire::Reclaimed answer = broker.seen().reclaimed[0];
    CHECK(answer.code == 0);
    // 10 MiB are mapped, 8 MiB of them reserved.
    CHECK(answer.bytes == (reclaimable ? 4_MiB : 2_MiB).value);
    CHECK(client->stats()->pool_bytes == (reclaimable ? 6_MiB : 8_MiB).value);
    CHECK(client->check().ok());
  }
}

TEST_CASE("idle chunks are mapped elsewhere before new ones are asked for, and keep working") {
  FakeBroker broker(8);
  auto client = attach(broker);
  std::vector<Address> blocks;
  for (int i = 0; i < 8; ++i)
    blocks.push_back(must_allocate(*client, 2_MiB));
  for (int i = 0; i < 8; i += 2)
    REQUIRE(client->deallocate(blocks[i], 0).ok());
  const int requests = broker.seen().requests;
  const Address big = must_allocate(*client, 8_MiB);
  CHECK(usable(big, 8_MiB));
  CHECK(broker.seen().requests == requests);
  CHECK(client->stats()->chunks_moved == 4);
  for (int i = 1; i < 8; i += 2)
    CHECK(usable(blocks[i], 2_MiB));
  CHECK(client->check().ok());
}

TEST_CASE("the report page follows the arena") {
  FakeBroker broker;
  auto client = attach(broker);
  const Address block = must_allocate(*client, 3_MiB);
  CHECK(broker.report().bytes_in_use == 3U << 20);
  CHECK(broker.report().pool_bytes == 4U << 20);
  CHECK(broker.report().bytes_cached == 1U << 20);
  REQUIRE(client->deallocate(block, 0).ok());
  for (int i = 0; i < 2000; ++i) {
    REQUIRE(client->deallocate(must_allocate(*client, 2_MiB), 0).ok());
  }
  CHECK(broker.report().num_allocs > 1000);
  CHECK(broker.report().peak_bytes_in_use == 3U << 20);
  REQUIRE(client->trim_to(0_B).ok());
  CHECK(broker.report().pool_bytes == 0);
}

TEST_CASE("threads share a session: every block is its own and works") {
  FakeBroker broker(200);
  auto client = attach(broker);
  std::array<std::string, 4> faults;
  std::vector<std::thread> threads;
  for (std::size_t thread = 0; thread < faults.size(); ++thread) {
    threads.emplace_back([&, thread] {
      for (int step = 0; step < 40; ++step) {
        const Bytes bytes{(1 + (thread * 7 + static_cast<std::size_t>(step) * 13) % 9) << 20};
        const Result<Address> block = client->allocate(bytes, 0, false);
        if (!block) {
          faults[thread] = block.error().message;
        } else if (!usable(*block, bytes) || !client->deallocate(*block, 0).ok()) {
          faults[thread] = "a block did not work";
        }
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  for (const std::string& fault : faults)
    CHECK(fault == "");
  CHECK(client->check().ok());
}

TEST_CASE("R11: a session reserves two ranges once, however much it allocates") {
  FakeBroker broker(100);
  const std::uint64_t before = control().calls("cuMemAddressReserve");
  auto client = attach(broker);
  for (int i = 0; i < 30; ++i)
    must_allocate(*client, 3_MiB);
  CHECK(control().calls("cuMemAddressReserve") == before + 2);
  CHECK(client->stats()->bytes_reservable_limit == (4_GiB).value);
}

TEST_CASE("no context is made by attaching, and none while the program's own is current") {
  FakeBroker broker;
  const DriverTable& driver = SimulatedDevice::instance().device->driver();
  const std::uint64_t before = control().calls("cuDevicePrimaryCtxRetain");
  auto client = attach(broker);
  CHECK(client->info().ok());
  CUcontext context = nullptr;
  REQUIRE(driver.ctx_create(&context, 0, 0) == CUDA_SUCCESS);
  const Address block = must_allocate(*client, 2_MiB);
  CHECK(control().calls("cuDevicePrimaryCtxRetain") == before);
  CUcontext current = nullptr;
  REQUIRE(driver.ctx_get_current(&current) == CUDA_SUCCESS);
  CHECK(current == context);
  REQUIRE(client->deallocate(block, 0).ok());
  REQUIRE(client->detach().ok());
  REQUIRE(driver.ctx_destroy(context) == CUDA_SUCCESS);
}

TEST_CASE("F49: a thousand sessions leave no descriptor, no mapping and no reference") {
  FakeBroker broker;
  CHECK(attach(broker)->detach().ok());
  const auto cycle = [&] {
    auto client = attach(broker);
    const Address block = must_allocate(*client, 3_MiB);
    must_allocate(*client, 1_KiB);
    CHECK(client->deallocate(block, 0).ok());
    CHECK(client->detach().ok());
  };
  cycle();
  CHECK(broker.wait([](const auto& seen) { return seen.hang_ups == 2; }));
  const std::size_t fds = quiet_fds(broker);
  const std::size_t maps = mappings();
  const std::uint64_t before = referenced();
  for (int round = 0; round < 1000; ++round)
    cycle();
  CHECK(broker.wait([](const auto& seen) { return seen.hang_ups == 1002; }));
  CHECK(quiet_fds(broker) == fds);
  CHECK(mappings() <= maps + kHostMappings);
  CHECK(referenced() == before);
  CHECK(control().violations() == 0);
}
