// The three cross-process invariants of the contract, at the driver's level: (a) whatever is killed, the
// device counts what is referred to, and no two allocations share bytes; (b) no byte of one owner is read by
// the next one who scrubs first; (c) an allocation is counted once, however it is referred to.
#include <algorithm>
#include <cstdlib>
#include <random>
#include <vector>

#include "driver.hpp"
#include "scene.hpp"
#include "tests/support/catch.hpp"

namespace apportion::conformance {
namespace {

// Seeds are printed; APPORTION_SEED repeats a run.
std::uint64_t seed_of_this_run() {
  if (const char* text = std::getenv("APPORTION_SEED")) return std::strtoull(text, nullptr, 10);
  return std::random_device{}();
}

bool long_run() {
  const char* text = std::getenv("APPORTION_LONG");
  return text != nullptr && *text == '1';
}

// One allocation of the kill test: its word, and where each process maps it (0: nowhere).
struct Shared {
  std::uint64_t word = 0;
  std::vector<std::uint64_t> address;
};

// Processes that share chunks at random; some are killed; what is left must be exactly what the others map.
void kill_some(std::uint64_t seed) {
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  const auto one_in = [&](unsigned n) { return random() % n == 0; };
  Scene scene({.environment = {"CUDASIM_DEATH_MS=0-50"}});
  const std::size_t idle = scene.free_bytes();
  constexpr std::size_t kProcesses = 3;
  std::vector<Peer> peers;
  for (std::size_t i = 0; i < kProcesses; ++i)
    peers.push_back(scene.with_context());
  const std::size_t contexts = idle - scene.free_bytes();

  std::vector<Shared> all;
  for (std::size_t owner = 0; owner < kProcesses; ++owner) {
    for (std::uint64_t made = 0; made < 2; ++made) {
      Shared shared{random() | 1, std::vector<std::uint64_t>(kProcesses)};
      const PeerChunk chunk = peers[owner].mapped_chunk(kChunk);
      shared.address[owner] = chunk.address;
      REQUIRE(peers[owner].write_word(chunk.address, shared.word) == kOk);
      const OwnedFd fd = peers[owner].exported(chunk.handle);
      for (std::size_t other = 0; other < kProcesses; ++other) {
        if (other == owner || one_in(2)) continue;
        shared.address[other] = peers[other].map_handle(peers[other].imported(fd), kChunk).address;
      }
      all.push_back(shared);
    }
  }

  std::vector<bool> alive(kProcesses, true);
  for (std::size_t i = 0; i < kProcesses; ++i) {
    if (one_in(2)) continue;
    peers[i].kill();
    alive[i] = false;
  }
  const auto survivors = static_cast<std::size_t>(std::count(alive.begin(), alive.end(), true));
  std::size_t referred = 0;
  for (const Shared& shared : all) {
    bool mapped = false;
    for (std::size_t i = 0; i < kProcesses; ++i) {
      if (!alive[i] || shared.address[i] == 0) continue;
      mapped = true;
      CHECK(peers[i].word(shared.address[i]) == shared.word);
    }
    if (mapped) referred += kChunk;
  }
  CHECK(scene.free_becomes(idle - contexts / kProcesses * survivors - referred));

  // The room is really there, and what is made in it is nobody else's.
  for (std::size_t i = 0; i < kProcesses; ++i) {
    if (!alive[i]) continue;
    const PeerChunk fresh = peers[i].mapped_chunk(kChunk);
    REQUIRE(peers[i].write_word(fresh.address, ~std::uint64_t{0}) == kOk);
  }
  for (const Shared& shared : all)
    for (std::size_t i = 0; i < kProcesses; ++i)
      if (alive[i] && shared.address[i] != 0) CHECK(peers[i].word(shared.address[i]) == shared.word);
}

}  // namespace

TEST_CASE(
    "invariant a: after any kill the device counts exactly what is still referred to, and nothing is shared",
    "[invariant][rests9][rests38]") {
  const std::uint64_t seed = seed_of_this_run();
  const int rounds = long_run() ? 200 : 3;
  for (int round = 0; round < rounds; ++round)
    kill_some(seed + static_cast<std::uint64_t>(round));
}

TEST_CASE("invariant a: a process killed in the middle of any call leaves nothing behind",
          "[invariant][rests9][rests38]") {
  const std::uint64_t seed = seed_of_this_run();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  const int rounds = long_run() ? 200 : 5;
  for (int round = 0; round < rounds; ++round) {
    Scene scene({.environment = {"CUDASIM_DEATH_MS=0-20"}});
    Peer survivor = scene.started();
    std::uint64_t handle = 0;
    REQUIRE(survivor.create(kChunk, &handle) == kOk);
    const std::size_t before = scene.free_bytes();
    Peer first = scene.started();
    Peer second = scene.started();
    first.start_churn(random(), kChunk);
    second.start_churn(random(), kChunk);
    ::poll(nullptr, 0, 1 + static_cast<int>(random() % 20));  // the instant of the kill
    first.kill();
    second.kill();
    CHECK(scene.free_becomes(before));
    CHECK(survivor.release(handle) == kOk);
    CHECK(scene.free_becomes(before + kChunk));
  }
}

TEST_CASE("invariant b: after a scrub and a synchronise the next owner reads nothing of the last one",
          "[invariant]") {
  Scene scene({.environment = {"CUDASIM_DIRTY=1"}, .observer = false});
  Peer owner = scene.with_context();
  Peer broker = scene.with_context();
  Peer next = scene.with_context();
  constexpr std::uint64_t kSecret = 0x5ec2e75ec2e75ec2;
  const std::vector<std::size_t> offsets = {0, kChunk / 2, kChunk - 8};
  std::uint64_t made = 0;
  REQUIRE(broker.create(kChunk, &made) == kOk);
  const PeerChunk used = owner.map_handle(owner.imported(broker.exported(made)), kChunk);
  for (const std::size_t offset : offsets)
    REQUIRE(owner.write_word(used.address + offset, kSecret) == kOk);
  owner.kill();
  const PeerChunk chunk = broker.map_handle(made, kChunk);
  for (const std::size_t offset : offsets)
    REQUIRE(broker.word(chunk.address + offset) == kSecret);
  REQUIRE(broker.fill(chunk.address, kChunk, 0) == kOk);
  const PeerChunk seen = next.map_handle(next.imported(broker.exported(made)), kChunk);
  for (const std::size_t offset : offsets)
    CHECK(next.word(seen.address + offset) == 0);
}

TEST_CASE("invariant c: an allocation is counted once, however many handles, mappings and fds refer to it",
          "[invariant][rests9]") {
  Scene scene;
  Peer first = scene.with_context();
  Peer second = scene.with_context();
  const std::size_t before = scene.free_bytes();
  const PeerChunk chunk = first.mapped_chunk(kChunk);
  CHECK(scene.free_is(before - kChunk));
  const OwnedFd fd = first.exported(chunk.handle);
  const OwnedFd again = first.exported(chunk.handle);
  const PeerChunk here = second.map_handle(second.imported(fd), kChunk);
  const PeerChunk there = second.map_handle(second.imported(again), kChunk);
  CHECK(scene.free_is(before - kChunk));
  REQUIRE(second.unmap(here.address, kChunk) == kOk);
  REQUIRE(first.unmap(chunk.address, kChunk) == kOk);
  REQUIRE(first.release(chunk.handle) == kOk);
  CHECK(scene.free_is(before - kChunk));
  REQUIRE(second.unmap(there.address, kChunk) == kOk);
}

}  // namespace apportion::conformance
