// Many clients that take, give, fork, detach and die at random, and the invariants that hold at every moment.
#include <signal.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <random>

#include "tests/support/catch.hpp"
#include "tests/support/test_client.hpp"

using namespace apportion;
using namespace apportion::testing;

namespace {

constexpr std::size_t kClients = 6;

// One client and what the test knows of it.
struct Guest {
  std::unique_ptr<TestClient> client;
  std::string job;
  std::map<std::uint64_t, Bytes> blocks;  // tag = address
};

class Storm {
 public:
  Storm(TestBroker& broker, unsigned seed) : broker_(broker), random_(seed) {
    for (std::size_t i = 0; i < kClients; ++i)
      arrive(i);
  }

  void step() {
    const std::size_t i = random_() % kClients;
    Guest& guest = guests_[i];
    switch (random_() % 16) {
      case 0:
        guest.client->kill();
        return arrive(i);
      case 1:
        die_in_a_call(i);
        return arrive(i);
      case 2:
        leave_a_child(guest);
        return arrive(i);
      case 3:
        guest.client->detach();
        guest.client->kill();
        return arrive(i);
      case 4:
      case 5:
        guest.client->must("trim 0");
        return;
      case 6:
      case 7:
        return take(guest, "exact");
      case 8:
      case 9:
      case 10:
        return give(guest);
      case 11:
        CHECK(guest.client->ask("verify").ok);
        return check_blocks(guest);
      default:
        return take(guest, "alloc");
    }
  }

  // Whatever happens: the sums hold, and no chunk is mapped by two programs.
  void check() {
    TestBroker::check_sums(broker_.status());
    const cudasim::CensusReport census = broker_.device().census();
    CHECK(census.overlap_bytes == 0);
    CHECK(census.physical_bytes >= census.referenced_bytes);
  }

  void end() {
    for (Guest& guest : guests_) {
      check_blocks(guest);
      guest.client->detach();
      guest.client->kill();
    }
    for (const pid_t child : children_)
      ::kill(child, SIGKILL);
  }

 private:
  void arrive(std::size_t i) {
    guests_[i] = {std::make_unique<TestClient>(broker_), "j" + std::to_string(i % 3), {}};
    guests_[i].client->attach(guests_[i].job, random_() % 2 == 0);
  }

  Bytes size() { return Bytes{(1 + random_() % 96) << (random_() % 2 == 0 ? 20 : 22)}; }

  void take(Guest& guest, const std::string& how) {
    const Bytes bytes = size();
    const TestClient::Answer answer = guest.client->ask(how + " " + std::to_string(bytes.value));
    INFO(how << " " << to_text(bytes) << ": " << answer.code << " " << answer.text);
    REQUIRE((answer.ok || answer.code == "APPORTION_QUOTA"));
    if (!answer.ok) return;
    const std::uint64_t address = std::stoull(answer.text);
    guest.blocks[address] = bytes;
    guest.client->write(address, bytes, address);
  }

  void give(Guest& guest) {
    if (guest.blocks.empty()) return;
    auto block = guest.blocks.begin();
    std::advance(block, static_cast<std::ptrdiff_t>(random_() % guest.blocks.size()));
    CHECK(guest.client->check(block->first, block->second, block->first) == block->second);
    guest.client->free(block->first);
    guest.blocks.erase(block);
  }

  void check_blocks(Guest& guest) {
    for (const auto& [address, bytes] : guest.blocks)
      CHECK(guest.client->check(address, bytes, address) == bytes);
  }

  void die_in_a_call(std::size_t i) {
    Guest& guest = guests_[i];
    guest.client->send((random_() % 2 == 0 ? "alloc " : "exact ") + std::to_string(size().value));
    guest.client->send("trim 0");
    guest.client->send("detach");
    // Between nothing and all of it.
    for (unsigned spin = random_() % 2000; spin > 0; --spin)
      (void)guest.client->pid();
    for (unsigned answers = random_() % 3; answers > 0; --answers)
      (void)guest.client->answer();
    guest.client->kill();
  }

  void leave_a_child(Guest& guest) {
    const pid_t child = std::stoi(guest.client->must(random_() % 2 == 0 ? "rawfork" : "fork"));
    children_.push_back(child);
    guest.client->kill();
    // Some children go soon, at most two stay.
    while (children_.size() > 2) {
      ::kill(children_.front(), SIGKILL);
      children_.erase(children_.begin());
    }
  }

  TestBroker& broker_;
  std::mt19937 random_;
  std::array<Guest, kClients> guests_;
  std::vector<pid_t> children_;
};

}  // namespace

TEST_CASE(
    "F01, F03, F05: a storm of clients that take, give, fork and die leaves every sum right and nothing "
    "behind") {
  const Watchdog watchdog(std::chrono::seconds(900));
  for (const std::string reserve : {"all", "leased"}) {
    INFO("reserve " << reserve);
    BrokerOptions options;
    options.device = 8_GiB;
    options.context = 32_MiB;
    options.death_max_ms = 50;
    options.broker = "reserve = \"" + reserve + "\"\n";
    options.jobs =
        "[jobs.j0]\nshare = \"0.3-0.6\"\n[jobs.j1]\nshare = \"0.3+\"\nlend = false\n[jobs.j2]\nshare = "
        "\"0.2\"\nreturn = \"strict\"\n";
    TestBroker broker(options);
    const TestBroker::Footprint before = broker.footprint();
    Storm storm(broker, seed());
    const unsigned steps = rounds(300, 10000);
    for (unsigned i = 0; i < steps; ++i) {
      storm.step();
      if (i % 8 == 0) storm.check();
    }
    storm.end();
    broker.wait_idle();
    broker.wait_footprint(before);
    CHECK(broker.status().broker.restarts == 0);
    CHECK(broker.device().violations() == 0);
  }
}
