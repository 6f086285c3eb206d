// Chunks over the simulated driver.
#include "gpu/chunk.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <vector>

#include "tests/support/catch.hpp"
#include "tests/unit/gpu/simulated.hpp"

using namespace apportion;
using apportion::testing::FailingCall;
using apportion::testing::Simulated;

namespace {

Result<Chunk> make(Bytes size) {
  return ChunkMaker(Simulated::instance().device()).make(size);
}

}  // namespace

TEST_CASE("a chunk takes its bytes from the device and gives them back when it goes") {
  Simulated& sim = Simulated::instance();
  const auto before = sim.left();
  {
    auto chunk = make(32_MiB);
    REQUIRE(chunk.ok());
    CHECK(chunk->size() == 32_MiB);
    CHECK(sim.left().used == before.used + 32_MiB);
    Chunk moved = *std::move(chunk);
    CHECK(chunk->empty());
    CHECK(sim.left().used == before.used + 32_MiB);
  }
  CHECK(sim.left() == before);
}

TEST_CASE("a chunk lives as long as any descriptor or import of it") {
  Simulated& sim = Simulated::instance();
  const auto before = sim.left();
  auto chunk = make(4_MiB);
  REQUIRE(chunk.ok());
  auto fd = chunk->export_fd();
  REQUIRE(fd.ok());
  CHECK((::fcntl(fd->get(), F_GETFD) & FD_CLOEXEC) != 0);
  REQUIRE(chunk->release().ok());
  CHECK(chunk->empty());
  CHECK(sim.left().used == before.used + 4_MiB);  // the descriptor alone holds it
  auto imported = Chunk::import(sim.device(), *fd, 4_MiB);
  REQUIRE(imported.ok());
  fd->reset();
  CHECK(sim.left().used == before.used + 4_MiB);
  auto again = imported->export_fd();  // rule 21: what the next broker does
  CHECK(again.ok());
  again->reset();
  REQUIRE(imported->release().ok());
  CHECK(sim.left() == before);
}

TEST_CASE("a descriptor that is no chunk is refused and leaves nothing") {
  Simulated& sim = Simulated::instance();
  const auto before = sim.left();
  const Fd memfd(::memfd_create("not-a-chunk", MFD_CLOEXEC));
  REQUIRE(memfd.valid());
  const auto imported = Chunk::import(sim.device(), memfd, 2_MiB);
  REQUIRE_FALSE(imported.ok());
  CHECK(imported.error().message.find("cuMemImportFromShareableHandle") != std::string::npos);
  CHECK(sim.left() == before);
}

TEST_CASE("rule 26: memory of another device is refused, though it is a chunk, and leaves nothing") {
  Simulated& sim = Simulated::instance();
  const DriverTable& driver = sim.device().driver();
  const auto before = sim.left();
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1};
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUmemGenericAllocationHandle handle = 0;
  REQUIRE(driver.mem_create(&handle, (2_MiB).value, &properties, 0) == CUDA_SUCCESS);
  int number = -1;
  REQUIRE(driver.mem_export_to_shareable_handle(&number, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                                0) == CUDA_SUCCESS);
  Fd fd(number);
  const auto imported = Chunk::import(sim.device(), fd, 2_MiB);
  REQUIRE_FALSE(imported.ok());
  CHECK(imported.error().code == Errc::invalid);
  CHECK(imported.error().message.find("device 1, not of device 0") != std::string::npos);
  fd.reset();
  REQUIRE(driver.mem_release(handle) == CUDA_SUCCESS);
  CHECK(sim.left() == before);
}

TEST_CASE("a chunk of no bytes or of a part of a granule is refused before the driver is asked") {
  Simulated& sim = Simulated::instance();
  const auto calls = sim.did("cuMemCreate");
  for (const Bytes size : {0_B, 1_B, 1_MiB, 3_MiB}) {
    const auto chunk = make(size);
    REQUIRE_FALSE(chunk.ok());
    CHECK(chunk.error().code == Errc::invalid);
  }
  CHECK(sim.did("cuMemCreate") == calls);
}

TEST_CASE("F32: a full device is told as out of memory, and nothing was taken") {
  Simulated& sim = Simulated::instance();
  const auto before = sim.left();
  {
    std::vector<Chunk> held;
    for (;;) {
      auto chunk = make(64_MiB);
      if (!chunk) {
        CHECK(chunk.error().code == Errc::out_of_memory);
        CHECK(chunk.error().message.find("CUDA_ERROR_OUT_OF_MEMORY (2)") != std::string::npos);
        break;
      }
      held.push_back(*std::move(chunk));
      REQUIRE(held.size() <= 16);
    }
    CHECK(held.size() >= 14);
    CHECK(sim.left().allocations == before.allocations + held.size());
  }
  CHECK(sim.left() == before);
}

TEST_CASE("F33: a failing create, export, import or check of an import leaves nothing behind") {
  Simulated& sim = Simulated::instance();
  const auto before = sim.left();
  for (const char* function : {"cuMemCreate", "cuMemExportToShareableHandle",
                               "cuMemImportFromShareableHandle", "cuMemGetAllocationPropertiesFromHandle"}) {
    INFO(function);
    const FailingCall failing(function, CUDA_ERROR_UNKNOWN, 1, FailingCall::kForEver);
    const auto attempt = [&]() -> Status {
      auto chunk = make(2_MiB);
      if (!chunk) return chunk.error();
      auto fd = chunk->export_fd();
      if (!fd) return fd.error();
      auto imported = Chunk::import(sim.device(), *fd, 2_MiB);
      if (!imported) return imported.error();
      return Done{};
    };
    const Status status = attempt();
    REQUIRE_FALSE(status.ok());
    CHECK(failing.met());
    CHECK(status.error().code == Errc::driver);
    CHECK(status.error().message.find(function) != std::string::npos);
    CHECK(sim.left() == before);
  }
}

TEST_CASE("F34: a chunk whose release fails is still owned, and can be released later") {
  Simulated& sim = Simulated::instance();
  const auto before = sim.left();
  auto chunk = make(2_MiB);
  REQUIRE(chunk.ok());
  {
    const FailingCall failing("cuMemRelease", CUDA_ERROR_UNKNOWN);
    CHECK_FALSE(chunk->release().ok());
    CHECK_FALSE(chunk->empty());
  }
  CHECK(sim.left().used == before.used + 2_MiB);
  CHECK(chunk->release().ok());
  CHECK(sim.left() == before);
}

TEST_CASE("what creation is refused beside descriptors is asked for once and not again") {
  Simulated& sim = Simulated::instance();
  REQUIRE(sim.device().facts().rdma);
  ChunkMaker maker(sim.device());
  REQUIRE(maker.rdma());
  const bool fabric = maker.fabric();
  const FailingCall failing("cuMemCreate", CUDA_ERROR_NOT_PERMITTED, 1, fabric ? 2 : 1);
  CHECK(maker.make(2_MiB).ok());
  CHECK(failing.met());
  CHECK_FALSE(maker.fabric());
  CHECK_FALSE(maker.rdma());
  CHECK(maker.make(2_MiB).ok());
}

TEST_CASE("K5: no descriptor left is reported as that, not as out of memory") {
  auto chunk = make(2_MiB);
  REQUIRE(chunk.ok());
  struct rlimit limit {};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &limit) == 0);
  struct rlimit none = limit;
  none.rlim_cur = 3;
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  const auto fd = chunk->export_fd();
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &limit) == 0);
  REQUIRE_FALSE(fd.ok());
  CHECK(fd.error().code == Errc::system);
}
