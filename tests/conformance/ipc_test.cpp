// Rules 32 to 35: legacy IPC handles of cuMemAlloc memory.
#include "local.hpp"
#include "scene.hpp"
#include "simulator.hpp"
#include "tests/support/catch.hpp"

namespace apportion::conformance {
namespace {

Answer ipc_handle(CUdeviceptr address) {
  CUipcMemHandle handle{};
  return Answer{driver().ipc_get_mem_handle(&handle, address)};
}

// Memory of cuMemAlloc in a process of its own, whole multiples of 2 MiB, with a word at its start.
struct Slab {
  explicit Slab(const Scene& scene) : owner(scene.with_context()) {
    REQUIRE(owner.mem_alloc(kChunk, &address) == kOk);
    REQUIRE(owner.write_word(address, kWord) == kOk);
    REQUIRE(owner.ipc_get(address, &blob) == kOk);
  }
  static constexpr std::uint64_t kWord = 0x51ab51ab;
  Peer owner;
  std::uint64_t address = 0;
  std::string blob;
};

}  // namespace

TEST_CASE("rule 32: an IPC handle is for memory of cuMemAlloc, not for mapped memory", "[rule32]") {
  use_device();
  CUdeviceptr plain = 0;
  REQUIRE(Answer{driver().mem_alloc(&plain, kChunk)} == kOk);
  CHECK(ipc_handle(plain) == kOk);
  driver().mem_free(plain);
  Range range;
  const Handle handle;
  range.mapped(0, handle);
  CHECK(ipc_handle(range.at()) == kInvalidValue);
}

TEST_CASE("rule 32: an IPC handle is not for managed memory", "[rule32]") {
  use_device();
  if (driver().mem_alloc_managed == nullptr) APPORTION_SKIP("the driver has no managed memory");
  CUdeviceptr managed = 0;
  REQUIRE(Answer{driver().mem_alloc_managed(&managed, kChunk, CU_MEM_ATTACH_GLOBAL)} == kOk);
  const Answer answer = ipc_handle(managed);
  driver().mem_free(managed);
  CHECK(answer == kInvalidValue);
}

TEST_CASE("rule 32: an IPC handle is not for memory of a pool", "[rule32]") {
  use_device();
  if (driver().mem_alloc_async == nullptr) APPORTION_SKIP("the driver has no memory pools");
  CUdeviceptr pooled = 0;
  REQUIRE(Answer{driver().mem_alloc_async(&pooled, kChunk, nullptr)} == kOk);
  REQUIRE(Answer{driver().ctx_synchronize()} == kOk);
  const Answer answer = ipc_handle(pooled);
  driver().mem_free_async(pooled, nullptr);
  driver().ctx_synchronize();
  CHECK(answer == kInvalidValue);
}

TEST_CASE("rule 33: the exporting process cannot open its own handle", "[rule33]") {
  Scene scene({.observer = false});
  Slab slab(scene);
  std::uint64_t address = 0;
  CHECK(slab.owner.ipc_open(slab.blob, &address) == kInvalidContext);
}

TEST_CASE("rule 33: a handle opened again in one context has the same address and the same bytes",
          "[rule33]") {
  Scene scene({.observer = false});
  Slab slab(scene);
  Peer importer = scene.with_context();
  std::uint64_t first = 0;
  std::uint64_t second = 0;
  REQUIRE(importer.ipc_open(slab.blob, &first) == kOk);
  REQUIRE(importer.ipc_open(slab.blob, &second) == kOk);
  CHECK(first == second);
  CHECK(importer.word(first) == Slab::kWord);
}

TEST_CASE("rule 33: the only flags of an open are 1", "[rule33]") {
  Scene scene({.observer = false});
  Slab slab(scene);
  Peer importer = scene.with_context();
  std::uint64_t address = 0;
  CHECK(importer.ipc_open(slab.blob, &address, 0) == kInvalidValue);
}

TEST_CASE("rule 33: a process in another PID namespace cannot open the handle", "[rule33]") {
  Scene scene({.observer = false});
  Slab slab(scene);
  Peer importer = scene.peer({.new_pid_namespace = true});
  if (!importer.usable()) APPORTION_SKIP("this user may not make a PID namespace");
  importer.start_context();
  std::uint64_t address = 0;
  CHECK(importer.ipc_open(slab.blob, &address) != kOk);
}

TEST_CASE("rule 34: closing needs a context", "[rule34]") {
  Scene scene({.observer = false});
  Slab slab(scene);
  Peer importer = scene.with_context();
  std::uint64_t address = 0;
  REQUIRE(importer.ipc_open(slab.blob, &address) == kOk);
  REQUIRE(importer.drop_context() == kOk);
  CHECK(importer.ipc_close(address) == kInvalidContext);
}

TEST_CASE("rule 34: each close takes back one open, and the last one the mapping", "[rule34]") {
  Scene scene({.observer = false});
  Slab slab(scene);
  Peer importer = scene.with_context();
  std::uint64_t first = 0;
  std::uint64_t second = 0;
  std::uint64_t word = 0;
  REQUIRE(importer.ipc_open(slab.blob, &first) == kOk);
  REQUIRE(importer.ipc_open(slab.blob, &second) == kOk);
  CHECK(importer.ipc_close(second) == kOk);
  CHECK(importer.read_word(first, &word) == kOk);
  CHECK(word == Slab::kWord);
  CHECK(importer.ipc_close(first) == kOk);
  CHECK(importer.ipc_close(first) != kOk);
  // The exporter's memory is unaffected.
  CHECK(slab.owner.word(slab.address) == Slab::kWord);
}

TEST_CASE("rule 35: the simulator reports an exporter that frees what another process has open", "[rule35]") {
  SIMULATOR_ONLY("what a device does then is undefined");
  Scene scene({.observer = false});
  Slab slab(scene);
  Peer importer = scene.with_context();
  std::uint64_t address = 0;
  REQUIRE(importer.ipc_open(slab.blob, &address) == kOk);
  const SimulatorControl control(scene.folder());
  const std::uint64_t reported = control->violations;
  static_cast<void>(slab.owner.mem_free(slab.address));
  CHECK(control->violations == reported + 1);
}

}  // namespace apportion::conformance
