// Mappings over the simulated driver.
#include "gpu/mapping.hpp"

#include <vector>

#include "gpu/context.hpp"
#include "tests/support/catch.hpp"
#include "tests/unit/gpu/simulated.hpp"

using namespace apportion;
using apportion::testing::FailingCall;
using apportion::testing::Simulated;

namespace {

constexpr std::size_t kRun = 3;
constexpr Bytes kChunk = 4_MiB;

std::vector<Chunk> make_chunks() {
  ChunkMaker maker(Simulated::instance().device());
  std::vector<Chunk> chunks;
  for (std::size_t i = 0; i < kRun; ++i) {
    auto chunk = maker.make(kChunk);
    REQUIRE(chunk.ok());
    chunks.push_back(*std::move(chunk));
  }
  return chunks;
}

std::vector<const Chunk*> pointers(const std::vector<Chunk>& chunks) {
  std::vector<const Chunk*> all;
  for (const Chunk& chunk : chunks)
    all.push_back(&chunk);
  return all;
}

}  // namespace

TEST_CASE("a run of chunks is one range of memory, and stays after the chunks' references went") {
  Simulated& sim = Simulated::instance();
  const auto before = sim.left();
  {
    const DriverTable& driver = sim.device().driver();
    auto context = PrimaryContext::retain(sim.device());
    REQUIRE(context.ok());
    std::vector<Chunk> chunks = make_chunks();
    const auto calls = sim.did("cuMemSetAccess");
    auto mapping = Mapping::map(sim.device(), pointers(chunks));
    REQUIRE(mapping.ok());
    CHECK(sim.did("cuMemSetAccess") == calls + 1);  // rule 15: one call for the run
    CHECK(mapping->size() == kChunk * kRun);
    chunks.clear();
    // Eight bytes over the seam between two chunks, and the last eight of all.
    for (const std::uint64_t at : {kChunk.value - 4, (kChunk * kRun).value - 8}) {
      const std::uint64_t written = 0x0123456789abcdef ^ at;
      std::uint64_t read = 0;
      REQUIRE(driver.memcpy_htod(mapping->base() + at, &written, sizeof written) == CUDA_SUCCESS);
      REQUIRE(driver.memcpy_dtoh(&read, mapping->base() + at, sizeof read) == CUDA_SUCCESS);
      CHECK(read == written);
    }
    CHECK(mapping->unmap().ok());
  }
  CHECK(sim.left() == before);
}

TEST_CASE("a mapped chunk is found again by any address inside it, and can be mapped elsewhere") {
  Simulated& sim = Simulated::instance();
  const auto before = sim.left();
  {
    std::vector<Chunk> chunks = make_chunks();
    auto mapping = Mapping::map(sim.device(), pointers(chunks));
    REQUIRE(mapping.ok());
    const auto handle = chunks[1].handle();
    chunks.clear();
    auto chunk = Chunk::at(sim.device(), mapping->base() + kChunk.value + 12345, kChunk);
    REQUIRE(chunk.ok());
    CHECK(chunk->handle() == handle);  // rule 25
    auto other = Mapping::map(sim.device(), *chunk);
    CHECK(other.ok());
  }
  CHECK(sim.left() == before);
}

TEST_CASE("F33: when the nth call of a mapping fails, no mapping and no address is left") {
  Simulated& sim = Simulated::instance();
  const auto before = sim.left();
  struct Failure {
    const char* function;
    cudasim::u64 nth;
  };
  for (const Failure& failure :
       {Failure{"cuMemAddressReserve", 1}, Failure{"cuMemMap", 1}, Failure{"cuMemMap", 2},
        Failure{"cuMemMap", 3}, Failure{"cuMemSetAccess", 1}}) {
    INFO(failure.function << " " << failure.nth);
    std::vector<Chunk> chunks = make_chunks();
    const auto held = sim.left();
    {
      const FailingCall failing(failure.function, CUDA_ERROR_UNKNOWN, failure.nth);
      const auto mapping = Mapping::map(sim.device(), pointers(chunks));
      REQUIRE_FALSE(mapping.ok());
      CHECK(failing.met());
      CHECK(mapping.error().message.find(failure.function) != std::string::npos);
    }
    CHECK(sim.left() == held);
    // The handles are whole: nothing maps them any more, so dropping them frees the memory.
    chunks.clear();
    CHECK(sim.left() == before);
  }
}

TEST_CASE("F33: a mapping that cannot be undone says which bytes stay mapped") {
  Simulated& sim = Simulated::instance();
  const auto before = sim.left();
  std::vector<Chunk> chunks = make_chunks();
  auto range = AddressRange::reserve(sim.device(), kChunk * kRun);
  REQUIRE(range.ok());
  {
    // A fourth chunk cannot be mapped: its addresses are outside of the range. And then unmapping fails too.
    const FailingCall failing("cuMemUnmap", CUDA_ERROR_UNKNOWN);
    std::vector<const Chunk*> run = pointers(chunks);
    run.push_back(&chunks[0]);
    const Status mapped = map_run(sim.device(), range->base(), run);
    REQUIRE_FALSE(mapped.ok());
    CHECK(mapped.error().message.find("12 MiB stay mapped") != std::string::npos);
  }
  REQUIRE(unmap_run(sim.device().driver(), range->base(), kChunk * kRun).ok());
  REQUIRE(range->free().ok());
  chunks.clear();
  CHECK(sim.left() == before);
}

TEST_CASE("F34: a mapping whose unmap or address free fails is still owned, and goes later") {
  Simulated& sim = Simulated::instance();
  const auto before = sim.left();
  for (const char* function : {"cuMemUnmap", "cuMemAddressFree"}) {
    INFO(function);
    std::vector<Chunk> chunks = make_chunks();
    auto mapping = Mapping::map(sim.device(), pointers(chunks));
    REQUIRE(mapping.ok());
    chunks.clear();
    {
      const FailingCall failing(function, CUDA_ERROR_UNKNOWN);
      CHECK_FALSE(mapping->unmap().ok());
      CHECK(failing.met());
    }
    CHECK(mapping->size() == kChunk * kRun);
    CHECK(mapping->unmap().ok());
    CHECK(sim.left() == before);
  }
}

TEST_CASE("several mappings go with one unmap, and a part of one is refused") {
  Simulated& sim = Simulated::instance();
  const auto before = sim.left();
  {
    std::vector<Chunk> chunks = make_chunks();
    auto range = AddressRange::reserve(sim.device(), kChunk * kRun);
    REQUIRE(range.ok());
    REQUIRE(map_run(sim.device(), range->base(), pointers(chunks)).ok());
    CHECK_FALSE(unmap_run(sim.device().driver(), range->base(), kChunk - 2_MiB).ok());
    const auto calls = sim.did("cuMemUnmap");
    CHECK(unmap_run(sim.device().driver(), range->base(), kChunk * kRun).ok());
    CHECK(sim.did("cuMemUnmap") == calls + 1);
  }
  CHECK(sim.left() == before);
}

TEST_CASE("addresses are aligned as asked") {
  auto range = AddressRange::reserve(Simulated::instance().device(), 64_MiB, 32_MiB);
  REQUIRE(range.ok());
  CHECK(range->base() % (32_MiB).value == 0);
  CHECK(range->size() == 64_MiB);
}
