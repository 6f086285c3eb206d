// Slabs made here and opened by another process, over the simulated driver.
#include "gpu/slab.hpp"

#include "gpu/context.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/run_program.hpp"
#include "tests/unit/gpu/simulated.hpp"

using namespace apportion;
using apportion::testing::built;
using apportion::testing::FailingCall;
using apportion::testing::Ran;
using apportion::testing::run_program;
using apportion::testing::Simulated;

namespace {

constexpr Bytes kSlab = 4_MiB;

std::string hex(const IpcHandle& handle) {
  std::string text;
  for (const std::uint8_t byte : handle) {
    char two[3];
    std::snprintf(two, sizeof two, "%02x", byte);
    text += two;
  }
  return text;
}

Ran open_elsewhere(const IpcHandle& handle, Bytes size, const std::string& twice = "") {
  std::vector<std::string> command = {built("tests/support/open_slab"), "sim:1GiB", hex(handle),
                                      std::to_string(size.value)};
  if (!twice.empty()) command.push_back(twice);
  return run_program(command, {});
}

unsigned char first_byte(const Device& device, const Slab& slab) {
  unsigned char byte = 0;
  REQUIRE(device.driver().memcpy_dtoh(&byte, slab.address(), 1) == CUDA_SUCCESS);
  return byte;
}

}  // namespace

TEST_CASE("another process opens a slab by its handle, and both see one memory") {
  Simulated& sim = Simulated::instance();
  auto context = PrimaryContext::retain(sim.device());
  REQUIRE(context.ok());
  const auto before = sim.left();
  const auto violations = sim.control().violations();
  {
    auto slab = Slab::make(sim.device(), kSlab);
    REQUIRE(slab.ok());
    CHECK(slab->size() == kSlab);
    CHECK(sim.left().used == before.used + kSlab);
    REQUIRE(slab->overwrite().ok());
    const Ran ran = open_elsewhere(slab->handle(), kSlab, "twice");
    INFO(ran.output);
    REQUIRE(ran.status == 0);
    CHECK(ran.output == "one address\n00\n");
    CHECK(first_byte(sim.device(), *slab) == 0x77);
    REQUIRE(slab->overwrite().ok());
    CHECK(first_byte(sim.device(), *slab) == 0);
    REQUIRE(slab->free().ok());
    CHECK(slab->empty());
  }
  CHECK(sim.left() == before);
  CHECK(sim.control().violations() == violations);
}

TEST_CASE("a slab goes with its object, and nothing is left of one that could not be made") {
  Simulated& sim = Simulated::instance();
  auto context = PrimaryContext::retain(sim.device());
  REQUIRE(context.ok());
  const auto before = sim.left();
  {
    auto slab = Slab::make(sim.device(), kSlab);
    REQUIRE(slab.ok());
    const Slab moved = *std::move(slab);
    CHECK(moved.size() == kSlab);
  }
  CHECK(sim.left() == before);
  for (const char* function : {"cuMemAlloc", "cuIpcGetMemHandle"}) {
    const FailingCall failing(function, CUDA_ERROR_UNKNOWN);
    const auto slab = Slab::make(sim.device(), kSlab);
    REQUIRE_FALSE(slab.ok());
    CHECK(slab.error().code == Errc::driver);
    CHECK(slab.error().message.find(function) == 0);
    CHECK(sim.left() == before);
  }
  CHECK(Slab::make(sim.device(), 1024_GiB).error().code == Errc::out_of_memory);
  CHECK(Slab::make(sim.device(), 0_B).error().code == Errc::invalid);
  CHECK(Slab::make(sim.device(), 3_MiB).error().code == Errc::invalid);
}

TEST_CASE("F34: a slab that cannot be freed is still there, and an overwriting that fails says so") {
  Simulated& sim = Simulated::instance();
  auto context = PrimaryContext::retain(sim.device());
  REQUIRE(context.ok());
  auto slab = Slab::make(sim.device(), kSlab);
  REQUIRE(slab.ok());
  {
    const FailingCall failing("cuMemFree", CUDA_ERROR_UNKNOWN);
    CHECK(slab->free().error().message.find("cuMemFree") == 0);
    CHECK_FALSE(slab->empty());
  }
  for (const char* function : {"cuMemsetD8Async", "cuStreamSynchronize"}) {
    const FailingCall failing(function, CUDA_ERROR_UNKNOWN);
    CHECK(slab->overwrite().error().message.find(function) == 0);
  }
  REQUIRE(slab->overwrite().ok());
  REQUIRE(slab->free().ok());
}

TEST_CASE("what is not a slab, not ours to open, or smaller than was said, is not opened") {
  Simulated& sim = Simulated::instance();
  auto context = PrimaryContext::retain(sim.device());
  REQUIRE(context.ok());
  auto slab = Slab::make(sim.device(), kSlab);
  REQUIRE(slab.ok());
  // Rule 33: the process that made it.
  CHECK(SlabImport::open(sim.device(), slab->handle(), kSlab).error().message.find("cuIpcOpenMemHandle") ==
        0);
  const Ran larger = open_elsewhere(slab->handle(), 8_MiB);
  CHECK(larger.status == 1);
  CHECK(larger.output == "the slab's handle opens 4194304 bytes, and the broker said 8388608\n");
  CHECK(open_elsewhere(IpcHandle{}, kSlab).output.find("cuIpcOpenMemHandle") == 0);
  const auto violations = sim.control().violations();
  REQUIRE(slab->free().ok());
  CHECK(sim.control().violations() == violations);  // what was refused has left no import
}
