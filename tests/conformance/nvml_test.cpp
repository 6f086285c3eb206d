// Rules 41 and 42: what NVML tells of whom. Figures are rounded and late, so everything is polled.
#include "driver.hpp"
#include "scene.hpp"
#include "tests/support/catch.hpp"

namespace apportion::conformance {
namespace {

bool near(std::size_t a, std::size_t b) {
  return a > b ? a - b <= kSlack : b - a <= kSlack;
}

// A helper that reads NVML; empty where NVML does not tell a process's bytes here.
struct Reader {
  explicit Reader(const Scene& scene) : peer(scene.with_context()) {
    // Its own context must show: in a container NVML may know other pids, or none.
    usable = eventually(
        [&] {
          std::size_t bytes = 0;
          return peer.nvml_process(peer.pid(), &bytes).ok() && bytes > 0;
        },
        3000);
  }
  std::size_t of(const Peer& process) {
    std::size_t bytes = 0;
    REQUIRE(peer.nvml_process(process.pid(), &bytes) == kOk);
    return bytes;
  }
  // The same once it stands still: a context that was just made shows late.
  std::size_t settled(const Peer& process) {
    std::size_t last = of(process);
    int same = 0;
    REQUIRE(eventually([&] {
      ::poll(nullptr, 0, 20);
      const std::size_t now = of(process);
      same = now == last && now > 0 ? same + 1 : 0;
      last = now;
      return same > 10;
    }));
    return last;
  }
  std::size_t used() {
    std::size_t bytes = 0;
    REQUIRE(peer.nvml_used(&bytes) == kOk);
    return bytes;
  }
  bool comes_to(const Peer& process, std::size_t bytes) {
    std::size_t seen = 0;
    const bool reached = eventually([&] { return near(seen = of(process), bytes); });
    if (!reached) UNSCOPED_INFO("NVML says " << seen << " bytes of that process, expected " << bytes);
    return reached;
  }
  Peer peer;
  bool usable = false;
};

constexpr std::size_t kMuch = 8 * kChunk;  // well above the rounding

}  // namespace

TEST_CASE("rule 41: NVML bills memory to its creator, not to an importer", "[rule41]") {
  Scene scene;
  Reader reader(scene);
  if (!reader.usable) APPORTION_SKIP("NVML does not tell the bytes of single processes here");
  Peer creator = scene.with_context();
  Peer importer = scene.with_context();
  const std::size_t creator_before = reader.settled(creator);
  const std::size_t importer_before = reader.settled(importer);
  const PeerChunk chunk = creator.mapped_chunk(kMuch);
  const PeerChunk theirs = importer.map_handle(importer.imported(creator.exported(chunk.handle)), kMuch);
  REQUIRE(importer.write_word(theirs.address, 1) == kOk);
  CHECK(reader.comes_to(creator, creator_before + kMuch));
  CHECK(reader.comes_to(importer, importer_before));
}

TEST_CASE("rule 41: NVML bills memory held by an fd alone to nobody, and the device shows it as used",
          "[rule41][rests38]") {
  Scene scene;
  Reader reader(scene);
  if (!reader.usable) APPORTION_SKIP("NVML does not tell the bytes of single processes here");
  const std::size_t own_before = reader.settled(reader.peer);
  const std::size_t used_before = reader.used();
  Peer creator = scene.with_context();
  const std::size_t before = reader.settled(creator);
  std::uint64_t handle = 0;
  REQUIRE(creator.create(kMuch, &handle) == kOk);
  const OwnedFd fd = creator.exported(handle);
  REQUIRE(reader.comes_to(creator, before + kMuch));
  const pid_t dead = creator.pid();
  creator.kill();
  CHECK(eventually([&] {
    std::size_t bytes = 0;
    REQUIRE(reader.peer.nvml_process(dead, &bytes) == kOk);
    return bytes == 0 && near(reader.used(), used_before + kMuch);
  }));
  CHECK(near(reader.of(reader.peer), own_before));
}

TEST_CASE("rule 42: NVML under-reports managed memory per process", "[rule42]") {
  Scene scene;
  Reader reader(scene);
  if (!reader.usable) APPORTION_SKIP("NVML does not tell the bytes of single processes here");
  if (driver().mem_alloc_managed == nullptr) APPORTION_SKIP("the driver has no managed memory");
  Peer peer = scene.with_context();
  const std::size_t before = reader.settled(peer);
  std::uint64_t managed = 0;
  std::uint64_t plain = 0;
  REQUIRE(peer.alloc_managed(kMuch, &managed) == kOk);
  // Plain memory made after it shows that the figure is not merely late.
  REQUIRE(peer.mem_alloc(kMuch, &plain) == kOk);
  CHECK(reader.comes_to(peer, before + kMuch));
}

}  // namespace apportion::conformance
