// Overwriting chunks, over the simulated driver.
#include "gpu/scrub.hpp"

#include <vector>

#include "gpu/context.hpp"
#include "gpu/mapping.hpp"
#include "tests/support/catch.hpp"
#include "tests/unit/gpu/simulated.hpp"

using namespace apportion;
using apportion::testing::FailingCall;
using apportion::testing::Simulated;

namespace {

constexpr Bytes kChunk = 4_MiB;

struct Written {
  std::vector<Chunk> chunks;
  std::vector<const Chunk*> pointers;

  explicit Written(const Device& device) {
    ChunkMaker maker(device);
    for (int i = 0; i < 3; ++i) {
      auto chunk = maker.make(kChunk);
      REQUIRE(chunk.ok());
      chunks.push_back(*std::move(chunk));
    }
    for (const Chunk& chunk : chunks)
      pointers.push_back(&chunk);
    auto mapping = Mapping::map(device, pointers);
    REQUIRE(mapping.ok());
    REQUIRE(device.driver().memset_d8(mapping->base(), 0xab, mapping->size().value) == CUDA_SUCCESS);
    REQUIRE(device.driver().ctx_synchronize() == CUDA_SUCCESS);
    REQUIRE(mapping->unmap().ok());
  }
  // Of the ends of each chunk, the bytes that are not zero.
  std::size_t left(const Device& device) const {
    auto mapping = Mapping::map(device, pointers);
    REQUIRE(mapping.ok());
    std::size_t count = 0;
    for (std::uint64_t at = 0; at < mapping->size().value; at += kChunk.value / 2) {
      std::vector<unsigned char> bytes(64);
      REQUIRE(device.driver().memcpy_dtoh(bytes.data(), mapping->base() + at, bytes.size()) == CUDA_SUCCESS);
      for (const unsigned char byte : bytes)
        count += byte != 0 ? 1 : 0;
    }
    REQUIRE(mapping->unmap().ok());
    return count;
  }
};

}  // namespace

TEST_CASE("a scrub leaves zeros, no mapping and no addresses, and is done when it returns") {
  Simulated& sim = Simulated::instance();
  auto context = PrimaryContext::retain(sim.device());
  REQUIRE(context.ok());
  const Written written(sim.device());
  CHECK(written.left(sim.device()) == 6 * 64);
  const auto before = sim.left();
  const auto violations = sim.control().violations();
  bool left_mapped = true;
  REQUIRE(scrub(sim.device(), written.pointers, left_mapped).ok());
  CHECK_FALSE(left_mapped);
  CHECK(sim.left() == before);
  CHECK(written.left(sim.device()) == 0);
  CHECK(sim.control().violations() == violations);  // unmapped after the work, not under it
}

TEST_CASE("F38: a scrub that fails at any of its calls says so, and leaves no mapping") {
  Simulated& sim = Simulated::instance();
  auto context = PrimaryContext::retain(sim.device());
  REQUIRE(context.ok());
  const Written written(sim.device());
  const auto before = sim.left();
  for (const char* function :
       {"cuMemAddressReserve", "cuMemMap", "cuMemSetAccess", "cuMemsetD8Async", "cuStreamSynchronize"}) {
    INFO(function);
    const FailingCall failing(function, CUDA_ERROR_UNKNOWN);
    bool left_mapped = true;
    const Status done = scrub(sim.device(), written.pointers, left_mapped);
    CHECK(failing.met());
    CHECK_FALSE(left_mapped);
    REQUIRE_FALSE(done.ok());
    CHECK(done.error().message.find(function) != std::string::npos);
    CHECK(sim.left() == before);
  }
  bool left_mapped = false;
  {
    const FailingCall failing("cuMemUnmap", CUDA_ERROR_UNKNOWN);
    CHECK_FALSE(scrub(sim.device(), written.pointers, left_mapped).ok());
    CHECK(left_mapped);
  }
  CHECK(scrub(sim.device(), written.pointers, left_mapped).ok());
}
