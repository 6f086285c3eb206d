// The other frameworks on the bare device: what start order, interleaving and a neighbour's coming and going
// do to them. bare_race_test.cpp has JAX classic. Sources of the sequences: tests/replay/README.md.
#include <string>
#include <vector>

#include "cudasim/control.hpp"
#include "shm/bytes.hpp"
#include "tests/replay/worker.hpp"
#include "tests/support/catch.hpp"

using namespace apportion;
using apportion::replay::Worker;
using nlohmann::json;

namespace {

constexpr std::int64_t kGib = std::int64_t{1} << 30;

std::string number(Bytes bytes) {
  return std::to_string(bytes.value);
}

// A device whose contexts cost 512 MiB, in a folder of its own.
class BareDevice {
 public:
  explicit BareDevice(Bytes total) : total_(total), folder_(options(total)) {}
  // A process of `framework`, told its figures; not started where `started` is false.
  std::unique_ptr<Worker> worker(const std::string& framework, std::vector<std::string> more = {}) const {
    more.insert(more.end(),
                {"--device", "sim:" + std::to_string(total_ / 1_MiB) + "MiB", "--framework", framework});
    auto made =
        std::make_unique<Worker>(more, std::map<std::string, std::string>{{"CUDASIM_DIR", folder_.path()}});
    made->expect("ready");
    return made;
  }
  [[nodiscard]] const cudasim::Control& control() const { return folder_.control(); }

 private:
  static cudasim::FolderOptions options(Bytes total) {
    cudasim::FolderOptions options;
    options.device_bytes = {total.value};
    options.context_bytes = (512_MiB).value;
    return options;
  }
  Bytes total_;
  cudasim::TemporaryFolder folder_;
};

json next(Worker& worker, const char* event) {
  worker.go();
  return worker.expect(event);
}

json run_whole(Worker& worker) {
  next(worker, "told");
  return next(worker, "result");
}

const std::vector<std::string> kHalf{"--utilization", "0.45"};

}  // namespace

TEST_CASE("bare: the second JAX 0.75+ gets nothing, and the first grows over what it would have had") {
  const BareDevice device(8_GiB);
  auto first = device.worker("jax-growing", {"--growth", number(192_MiB)});
  auto second = device.worker("jax-growing");
  const json got = run_whole(*first);
  CHECK(got["ok"] == true);
  CHECK(got["got_bytes"] == (6_GiB + 192_MiB).value);
  const json none = run_whole(*second);
  CHECK(none["got_bytes"] == 0);
  CHECK(none["tries"] == 1);
  CHECK(none["error"].get<std::string>().find("CUDA_ERROR_OUT_OF_MEMORY") != std::string::npos);
  CHECK(first->finish() == 0);
}

TEST_CASE("bare: JAX 0.75+ stops growing where a neighbour has the rest") {
  const BareDevice device(8_GiB);
  auto neighbour = device.worker("jax", {"--fraction", "0.1", "--first-request", "1048576"});
  CHECK(run_whole(*neighbour)["ok"] == true);  // 820 MiB and a context
  auto jax = device.worker("jax-growing", {"--growth", number(1_GiB)});
  const json got = run_whole(*jax);
  INFO(got.dump());
  CHECK(got["ok"] == false);
  CHECK(got["got_bytes"] == (6_GiB + 192_MiB).value);
  CHECK(got["error"] == "the pool cannot grow by 64 MiB: 12 MiB are free");
}

TEST_CASE("bare: start order decides what TensorFlow gets: 6144, 799 MiB, and no context for a third") {
  const BareDevice device(8_GiB);
  const std::vector<std::string> small{"--first-request", number(64_MiB)};
  auto first = device.worker("tensorflow", small);
  auto second = device.worker("tensorflow", small);
  auto third = device.worker("tensorflow", small);
  CHECK(run_whole(*first)["got_bytes"] == (6_GiB).value);
  const json rest = run_whole(*second);
  CHECK(rest["got_bytes"] == (799_MiB).value);
  CHECK(rest["ok"] == true);  // it has all that it wanted: what was free
  const json none = run_whole(*third);
  CHECK(none["told_bytes"].is_null());
  CHECK(none["got_bytes"] == 0);
}

TEST_CASE("bare: two vLLM one after the other have the same cache") {
  const BareDevice device(20_GiB);
  for (auto worker : {device.worker("vllm", kHalf).release(), device.worker("vllm", kHalf).release()}) {
    const std::unique_ptr<Worker> owned(worker);
    next(*owned, "told");
    next(*owned, "step");
    CHECK(next(*owned, "step")["cache_bytes"] == 4 * kGib);
    CHECK(next(*owned, "result")["ok"] == true);
    CHECK(owned->finish() == 0);
  }
}

TEST_CASE("bare: two vLLM in turn take each other's weights for their libraries': less cache for both") {
  const BareDevice device(24_GiB);
  auto first = device.worker("vllm", kHalf);
  auto second = device.worker("vllm", kHalf);
  next(*first, "told");
  next(*second, "told");
  next(*first, "step");
  next(*second, "step");
  // 10.8 - 4 - 1 GiB are 5.8; the second's context and weights are missing from the first's.
  const std::int64_t alone = 24 * kGib * 45 / 100 + 1 - 5 * kGib;
  CHECK(next(*first, "step")["cache_bytes"] == alone - 4 * kGib - kGib / 2);
  CHECK(next(*first, "result")["ok"] == true);
  const json squeezed = next(*second, "step");
  CHECK(squeezed["cache_bytes"].get<std::int64_t>() < kGib);
}

TEST_CASE("bare: vLLM that profiles while its neighbour takes a cache has less than none, and ends") {
  const BareDevice device(24_GiB);
  auto first = device.worker("vllm", kHalf);
  auto second = device.worker("vllm", kHalf);
  next(*first, "told");
  next(*second, "told");
  next(*first, "step");
  next(*first, "step");
  next(*first, "result");
  next(*second, "step");
  const json step = next(*second, "step");
  CHECK(step["cache_bytes"].get<std::int64_t>() < -3 * kGib);
  CHECK(step["error"] == "no memory is left for the cache");
  CHECK(next(*second, "result")["ok"] == false);
}

TEST_CASE("bare: vLLM ends when its neighbour leaves while it profiles") {
  const BareDevice device(24_GiB);
  auto neighbour = device.worker("vllm", kHalf);
  next(*neighbour, "told");
  next(*neighbour, "step");
  next(*neighbour, "step");
  next(*neighbour, "result");
  auto vllm = device.worker("vllm", kHalf);
  next(*vllm, "told");
  next(*vllm, "step");
  CHECK(neighbour->finish() == 0);
  const json step = next(*vllm, "step");
  CHECK(step["error"].get<std::string>().find("others gave memory back meanwhile") != std::string::npos);
}

TEST_CASE("R6: on the bare device PyTorch native fails with half the card free, expandable segments do not") {
  const BareDevice device(21_GiB + 512_MiB);
  auto native = device.worker("pytorch", {"--run", "fragmenting"});
  const json refused = run_whole(*native);
  CHECK(refused["ok"] == false);
  CHECK(refused["error"].get<std::string>().find("large: tried to allocate 11 GiB") == 0);
  CHECK(native->finish() == 0);
  auto expandable = device.worker("pytorch-expandable", {"--run", "fragmenting"});
  const json placed = run_whole(*expandable);
  INFO(placed.dump());
  CHECK(placed["ok"] == true);
  CHECK(placed["got_bytes"].get<std::uint64_t>() >= (11_GiB + 5632_MiB).value);
  CHECK(expandable->finish() == 0);
  CHECK(device.control().violations() == 0);
}
