// Rules 27 to 31: pointer attributes, figures, and memory of cuMemAlloc.
#include "local.hpp"
#include "scene.hpp"
#include "simulator.hpp"
#include "tests/support/catch.hpp"

namespace apportion::conformance {
namespace {

template <typename T>
T pointer_attribute(CUpointer_attribute which, CUdeviceptr address) {
  T value{};
  REQUIRE(Answer{driver().pointer_get_attribute(&value, which, address)} == kOk);
  return value;
}

// Memory of cuMemAlloc that is freed at the end.
class Plain {
 public:
  explicit Plain(std::size_t bytes = kChunk) { REQUIRE(Answer{driver().mem_alloc(&address_, bytes)} == kOk); }
  ~Plain() {
    if (address_ != 0) driver().mem_free(address_);
  }
  Plain(const Plain&) = delete;
  Plain& operator=(const Plain&) = delete;
  [[nodiscard]] CUdeviceptr at() const { return address_; }
  Answer free() { return Answer{driver().mem_free(std::exchange(address_, 0))}; }

 private:
  CUdeviceptr address_ = 0;
};

}  // namespace

TEST_CASE("rule 27: mapped memory is not legacy-IPC capable; memory of cuMemAlloc is", "[rule27]") {
  use_device();
  Range range;
  const Handle handle;
  range.mapped(0, handle);
  CHECK(pointer_attribute<int>(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, range.at()) == 0);
  const Plain plain;
  CHECK(pointer_attribute<int>(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, plain.at()) == 1);
}

TEST_CASE("rule 27: range start and size of mapped memory are the reservation's", "[rule27]") {
  use_device();
  Range range(3 * kChunk);
  const Handle handle;
  range.mapped(kChunk, handle);
  CHECK(pointer_attribute<CUdeviceptr>(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, range.at(kChunk + 4096)) ==
        range.at());
  CHECK(pointer_attribute<std::size_t>(CU_POINTER_ATTRIBUTE_RANGE_SIZE, range.at(kChunk + 4096)) ==
        3 * kChunk);
}

TEST_CASE("rule 28: free and total need a context", "[rule28]") {
  Scene scene({.observer = false});
  Peer peer = scene.started();
  std::size_t free = 0;
  CHECK(peer.mem_info(&free) == kInvalidContext);
}

TEST_CASE("rule 28: either pointer of MemGetInfo may be null", "[rule28]") {
  use_device();
  std::size_t free = 0;
  std::size_t total = 0;
  CHECK(Answer{driver().mem_get_info(&free, nullptr)} == kOk);
  CHECK(Answer{driver().mem_get_info(nullptr, &total)} == kOk);
  CHECK(free > 0);
  CHECK(total >= free);
}

TEST_CASE("rule 29: cuMemAlloc refuses 0 bytes", "[rule29]") {
  use_device();
  CUdeviceptr address = 0;
  CHECK(Answer{driver().mem_alloc(&address, 0)} == kInvalidValue);
}

TEST_CASE("rule 29: cuMemAlloc needs a context", "[rule29]") {
  Scene scene({.observer = false});
  Peer peer = scene.started();
  std::uint64_t address = 0;
  CHECK(peer.mem_alloc(kChunk, &address) == kInvalidContext);
}

TEST_CASE("rule 29: memory of cuMemAlloc is not cleared", "[rule29][rests7]") {
  SIMULATOR_ONLY("what a device shows is undefined; the dirty mode always shows the worst case");
  Scene scene({.devices = "1GiB", .environment = {"CUDASIM_DIRTY=1"}, .observer = false});
  Peer peer = scene.with_context();
  std::uint64_t address = 0;
  REQUIRE(peer.mem_alloc(kChunk, &address) == kOk);
  CHECK(peer.word(address) != 0);
}

TEST_CASE("rule 30: cuMemFree refuses mapped memory", "[rule30]") {
  use_device();
  Range range;
  const Handle handle;
  range.mapped(0, handle);
  CHECK(Answer{driver().mem_free(range.at())} == kInvalidValue);
}

TEST_CASE("rule 30: cuMemFree refuses an address inside an allocation", "[rule30]") {
  use_device();
  const Plain plain;
  CHECK(Answer{driver().mem_free(plain.at() + 4096)} == kInvalidValue);
}

TEST_CASE("rule 30: cuMemFree refuses what was freed", "[rule30]") {
  use_device();
  Plain plain;
  const CUdeviceptr address = plain.at();
  REQUIRE(plain.free() == kOk);
  CHECK(Answer{driver().mem_free(address)} == kInvalidValue);
}

TEST_CASE("rule 31: a memset is not done when it returns; a synchronise waits for it", "[rule31]") {
  use_device();
  REQUIRE(Answer{driver().ctx_synchronize()} == kOk);
  const Plain plain(1024 * kMiB);
  write_word(plain.at(), 31);
  // Several, so that a fast device is still at work when the host asks.
  for (int round = 0; round < 16; ++round)
    REQUIRE(Answer{driver().memset_d8(plain.at(), 0, 1024 * kMiB)} == kOk);
  CHECK(Answer{driver().stream_query(nullptr)} == kNotReady);
  REQUIRE(Answer{driver().ctx_synchronize()} == kOk);
  CHECK(Answer{driver().stream_query(nullptr)} == kOk);
  CHECK(read_word(plain.at()) == 0);
}

}  // namespace apportion::conformance
