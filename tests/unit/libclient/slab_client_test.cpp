// The client with the ipc transport, against a broker whose slabs another process owns.
#include <array>
#include <cstdio>
#include <thread>

#include "tests/unit/libclient/client_support.hpp"

using namespace apportion;
using namespace apportion::testing;

namespace {

constexpr FakeBroker::Memory kSlabs = FakeBroker::Memory::slabs;

// Growth in slabs of 8 MiB at least.
std::unique_ptr<Client> attach_slabs(const FakeBroker& broker) {
  Result<std::unique_ptr<Client>> client = Client::attach({"trainer", "test", broker.path(), false}, 4);
  if (!client) FAIL(client.error().message);
  return *std::move(client);
}

// Of the driver's imports and frees.
std::uint64_t opens() {
  return control().calls("cuIpcOpenMemHandle");
}

}  // namespace

TEST_CASE("slabs: a session allocates, uses, frees, trims and detaches, and nothing stays open") {
  const std::uint64_t violations = control().violations();
  FakeBroker broker(64, kSlabs);
  {
    auto client = attach_slabs(broker);
    CHECK(client->info()->transport == APPORTION_TRANSPORT_IPC);
    const Address large = must_allocate(*client, 20_MiB);
    const Address small = must_allocate(*client, 5_KiB);
    CHECK(usable(large, 20_MiB));
    CHECK(usable(small, 5_KiB));
    CHECK(broker.leased_slabs() == 28_MiB);
    CHECK(client->check().ok());
    CHECK(client->stats()->pool_bytes == (28_MiB).value);
    REQUIRE(client->deallocate(large, 0).ok());
    REQUIRE(client->deallocate(small, 0).ok());
    CHECK(*client->trim_to(0_B) == 28_MiB);
    CHECK(broker.leased_slabs() == 0_B);
    const Address left = must_allocate(*client, 3_MiB);
    CHECK(usable(left, 3_MiB));
    CHECK(client->detach().ok());
    CHECK(broker.wait([](const auto& seen) { return seen.detaches == 1; }));
    CHECK(broker.leased_slabs() == 0_B);
  }
  CHECK(control().violations() == violations);  // rule 35: nothing is freed while it is open
  CHECK(opens() == control().calls("cuIpcCloseMemHandle"));
}

TEST_CASE("slabs: no address is reserved, and no message is sent while what was freed does") {
  FakeBroker broker(64, kSlabs);
  const std::uint64_t reserved = control().calls("cuMemAddressReserve");
  auto client = attach_slabs(broker);
  const auto step = [&] {
    std::array<Address, 4> blocks{};
    for (std::size_t index = 0; index < blocks.size(); ++index) {
      const Bytes size{std::uint64_t{3000} << (4 * index)};
      blocks[index] = client->try_allocate(size, 0);
      if (blocks[index] == 0) blocks[index] = must_allocate(*client, size);
    }
    for (const Address block : blocks)
      if (!client->try_deallocate(block, 0)) REQUIRE(client->deallocate(block, 0).ok());
  };
  step();
  const int requests = broker.seen().requests;
  const std::uint64_t calls = opens();
  for (int round = 0; round < 200; ++round)
    step();
  CHECK(broker.seen().requests == requests);
  CHECK(opens() == calls);
  CHECK(control().calls("cuMemAddressReserve") == reserved);
}

TEST_CASE(
    "slabs: a growth that is refused is asked for again at its least, and with what is idle given back") {
  FakeBroker broker(10, kSlabs);
  auto client = attach_slabs(broker);
  const Address first = must_allocate(*client, 14_MiB);
  const Address second = must_allocate(*client, 5_MiB);  // 8 MiB are not to be had, 6 MiB are
  CHECK(broker.seen().asked.back().second == (6_MiB).value);
  CHECK(broker.leased_slabs() == 20_MiB);
  REQUIRE(client->deallocate(first, 0).ok());
  const Address third = must_allocate(*client, 14_MiB + 1_B - 1_B);
  CHECK(third == first);
  REQUIRE(client->deallocate(third, 0).ok());
  REQUIRE(client->deallocate(second, 0).ok());
  const Address whole = must_allocate(*client, 20_MiB);
  CHECK(usable(whole, 20_MiB));
  CHECK(broker.leased_slabs() == 20_MiB);
  const Result<Address> refused = client->allocate(1_MiB, 0, false);
  REQUIRE(!refused);
  CHECK(refused.error().message == "job trainer: asked for more than its limit");
  CHECK(client->check().ok());
}

TEST_CASE("slabs: an exact block is a slab of exactly its size, given back when it is freed") {
  FakeBroker broker(64, kSlabs);
  auto client = attach_slabs(broker);
  const Address block = must_allocate(*client, 3_MiB, true);
  CHECK(usable(block, 4_MiB));
  CHECK(broker.leased_slabs() == 4_MiB);
  CHECK(client->deallocate(block, 0).ok());
  CHECK(broker.leased_slabs() == 0_B);
}

TEST_CASE("slabs: a pointer that is no block is refused under its own address") {
  FakeBroker broker(64, kSlabs);
  auto client = attach_slabs(broker);
  const Address block = must_allocate(*client, 3_MiB);
  CHECK(client->deallocate(0, 0).ok());
  for (const Address wrong : {block + 512, Address{0x1234000}, ~Address{0}}) {
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), "0x%llx:", static_cast<unsigned long long>(wrong));
    const Status freed = client->deallocate(wrong, 0);
    REQUIRE(!freed);
    CHECK(freed.error().code == Errc::invalid);
    CHECK(freed.error().message.find(text.data()) != std::string::npos);
  }
  REQUIRE(client->deallocate(block, 0).ok());
  CHECK(client->deallocate(block, 0).error().code == Errc::invalid);
}

TEST_CASE("slabs: two sessions of one process have slabs of their own, side by side") {
  FakeBroker broker(64, kSlabs);
  auto first = attach_slabs(broker);
  auto second = attach_slabs(broker);
  const Address a = must_allocate(*first, 8_MiB);
  const Address b = must_allocate(*second, 8_MiB);
  CHECK(usable(a, 8_MiB));
  CHECK(usable(b, 8_MiB));
  CHECK((a + (8_MiB).value <= b || b + (8_MiB).value <= a));
  CHECK(first->deallocate(b, 0).error().code == Errc::invalid);
  CHECK(first->detach().ok());
  CHECK(usable(b, 8_MiB));
}

TEST_CASE("slabs: all are opened in the context of the first, whatever is current later") {
  FakeBroker broker(64, kSlabs);
  const DriverTable& driver = SimulatedDevice::instance().device->driver();
  auto client = attach_slabs(broker);
  CUcontext home = nullptr;
  REQUIRE(driver.ctx_create(&home, 0, 0) == CUDA_SUCCESS);
  must_allocate(*client, 8_MiB);
  CUcontext popped = nullptr;
  REQUIRE(driver.ctx_pop_current(&popped) == CUDA_SUCCESS);
  Address second = 0;
  std::thread([&] { second = must_allocate(*client, 16_MiB); }).join();  // a thread without a context
  REQUIRE(driver.ctx_push_current(home) == CUDA_SUCCESS);
  CUcontext owner = nullptr;
  REQUIRE(driver.pointer_get_attribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, second) == CUDA_SUCCESS);
  CHECK(owner == home);
  CHECK(client->detach().ok());
  REQUIRE(driver.ctx_destroy(home) == CUDA_SUCCESS);
  CHECK(broker.leased_slabs() == 0_B);
}

TEST_CASE("F33: a slab that cannot be opened is given back, and the session goes on") {
  FakeBroker broker(64, kSlabs);
  auto client = attach_slabs(broker);
  must_allocate(*client, 1_KiB);
  const std::uint64_t before = referenced();
  for (const char* function : {"cuIpcOpenMemHandle", "cuMemGetAddressRange"}) {
    INFO(function);
    const int nacked = broker.seen().nacked;
    {
      const Failing failing(function, 999);
      const Result<Address> failed = client->allocate(20_MiB, 0, false);
      REQUIRE(!failed);
      CHECK(failed.error().code == Errc::driver);
    }
    CHECK(broker.wait([&](const auto& seen) { return seen.nacked == nacked + 1; }));
    CHECK(broker.seen().nack_reason == Errc::driver);
    CHECK(broker.leased_slabs() == 8_MiB);
    CHECK(referenced() == before);
    CHECK(client->check().ok());
  }
  CHECK(usable(must_allocate(*client, 20_MiB), 20_MiB));
}

TEST_CASE("a slab that is not where the broker said, or of another size, is given back") {
  FakeBroker broker(64, kSlabs);
  auto client = attach_slabs(broker);
  broker.wrong_place = true;
  CHECK(client->allocate(8_MiB, 0, false).error().code == Errc::not_found);
  broker.wrong_place = false;
  broker.wrong_size = true;
  CHECK(client->allocate(8_MiB, 0, false).error().code == Errc::protocol);
  broker.wrong_size = false;
  CHECK(broker.wait([](const auto& seen) { return seen.nacked == 2; }));
  CHECK(broker.leased_slabs() == 0_B);
  CHECK(usable(must_allocate(*client, 8_MiB), 8_MiB));
}

TEST_CASE("F34: a slab whose close fails stays leased and is never used again") {
  FakeBroker broker(64, kSlabs);
  auto client = attach_slabs(broker);
  REQUIRE(client->deallocate(must_allocate(*client, 8_MiB), 0).ok());
  {
    const Failing failing("cuIpcCloseMemHandle", 999);
    CHECK(client->trim_to(0_B).error().code == Errc::driver);
  }
  CHECK(broker.leased_slabs() == 8_MiB);
  CHECK(client->stats()->cached_bytes == 0);
  must_allocate(*client, 8_MiB);
  CHECK(broker.leased_slabs() == 16_MiB);
  CHECK(client->check().ok());
  {
    const Failing failing("cuIpcCloseMemHandle", 999, 1, cudasim::Fault::kForEver);
    CHECK(client->detach().error().code == Errc::driver);
  }
  CHECK(broker.wait([](const auto& seen) { return seen.hang_ups == 1; }));
  CHECK(broker.seen().detaches == 0);
}

TEST_CASE("F52: while blocks are live whose memory is gone, nobody allocates, and then everybody again") {
  const std::uint64_t violations = control().violations();
  FakeBroker broker(64, kSlabs);
  auto client = attach_slabs(broker);
  const Address large = must_allocate(*client, 20_MiB);
  const Address exact = must_allocate(*client, 2_MiB, true);
  const Address small = must_allocate(*client, 5_KiB);
  broker.lose_slabs();
  // It is heard with the next message at the latest; what there is room for is handed out until then.
  const auto told = [&](const Result<Address>& answer) {
    return !answer && answer.error().code == Errc::disconnected;
  };
  Result<Address> answer = client->allocate(40_MiB, 0, false);
  if (!told(answer)) {
    REQUIRE(answer.ok());
    REQUIRE(client->deallocate(*answer, 0).ok());
    answer = client->allocate(1_KiB, 0, false);
  }
  REQUIRE(told(answer));
  CHECK(answer.error().message.find("22 MiB of") == 0);
  CHECK(answer.error().message.find("the process that owned them has died") != std::string::npos);
  CHECK(client->try_allocate(512_B, 0) == 0);
  CHECK(client->reserve(50_MiB).error().code == Errc::disconnected);
  CHECK(client->deallocate(large, 0).ok());
  CHECK(client->deallocate(exact, 0).ok());
  CHECK(told(client->allocate(1_KiB, 0, false)));
  const int released = broker.seen().released;
  CHECK(client->deallocate(small, 0).ok());
  CHECK(client->deallocate(small, 0).error().code == Errc::invalid);
  CHECK(usable(must_allocate(*client, 20_MiB), 20_MiB));
  CHECK(broker.seen().released == released);
  CHECK(broker.seen().strange == 0);  // what was lost is no longer leased
  CHECK(client->check().ok());
  CHECK(client->detach().ok());
  CHECK(control().violations() == violations);
}

TEST_CASE("F52: where only idle slabs are gone, the program need not know") {
  FakeBroker broker(64, kSlabs);
  auto client = attach_slabs(broker);
  REQUIRE(client->deallocate(must_allocate(*client, 20_MiB), 0).ok());
  broker.lose_slabs();
  CHECK(usable(must_allocate(*client, 40_MiB), 40_MiB));
  const Address next = must_allocate(*client, 20_MiB);
  CHECK(usable(next, 20_MiB));
  CHECK(broker.leased_slabs() == 60_MiB);
  CHECK(client->check().ok());
}

TEST_CASE("F52: a broker that is gone takes the slabs with it") {
  auto broker = std::make_unique<FakeBroker>(64, kSlabs);
  auto client = attach_slabs(*broker);
  const Address block = must_allocate(*client, 5_MiB);
  broker.reset();
  CHECK(client->allocate(40_MiB, 0, false).error().code == Errc::disconnected);
  const Result<Address> refused = client->allocate(1_KiB, 0, false);  // which there is room for
  REQUIRE(!refused);
  CHECK(refused.error().code == Errc::disconnected);
  CHECK(refused.error().message.find("5 MiB of") == 0);
  CHECK(refused.error().message.find("and with it the process that owned") != std::string::npos);
  CHECK(client->deallocate(block, 0).ok());
  CHECK(client->allocate(1_KiB, 0, false).error().message.find("the broker at") == 0);
  CHECK(client->check().ok());
  CHECK(client->detach().ok());
}

TEST_CASE("F52: a session whose slabs are gone detaches") {
  FakeBroker broker(64, kSlabs);
  auto client = attach_slabs(broker);
  must_allocate(*client, 20_MiB);
  broker.lose_slabs();
  CHECK(client->detach().ok());
  CHECK(broker.seen().detaches == 1);
}
