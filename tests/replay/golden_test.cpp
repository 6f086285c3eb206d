// The call sequences of the replayers, as the simulated driver logged them, against tests/replay/golden/. A
// change there is a change of what we claim the frameworks do: it needs a source (README.md).
// APPORTION_UPDATE_GOLDEN=1 writes the files instead of comparing.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "cudasim/control.hpp"
#include "shm/bytes.hpp"
#include "tests/replay/worker.hpp"
#include "tests/support/catch.hpp"

using namespace apportion;
using apportion::replay::Worker;

namespace {

cudasim::FolderOptions device_of(Bytes total) {
  cudasim::FolderOptions options;
  options.device_bytes = {total.value};
  options.context_bytes = (512_MiB).value;
  return options;
}

// Which of a call's two logged arguments is a size; calls that are not here have none.
const std::map<std::string, int>& size_arguments() {
  static const std::map<std::string, int> arguments{
      {"cuMemAlloc", 0}, {"cuMemCreate", 0}, {"cuMemAddressReserve", 0}, {"cuMemAddressFree", 1},
      {"cuMemMap", 1},   {"cuMemUnmap", 1},  {"cuMemSetAccess", 1}};
  return arguments;
}

// What a process did from its context on, a line a call: "cuMemAlloc 64424509440 -> 0". Copies, and the texts
// of errors, are the worker's own and not the framework's.
std::string sequence(const cudasim::Control& control, pid_t pid) {
  std::ostringstream lines;
  bool begun = false;
  for (const cudasim::CallRecord& record : control.records(0)) {
    if (record.pid != pid || record.kind != cudasim::RecordKind::kCall) continue;
    begun = begun || record.function == "cuDevicePrimaryCtxRetain";
    if (!begun || record.function.starts_with("cuMemcpy") || record.function.starts_with("cuGetError"))
      continue;
    lines << record.function;
    if (const auto size = size_arguments().find(record.function); size != size_arguments().end())
      lines << ' ' << (size->second == 0 ? record.a : record.b);
    lines << " -> " << record.result << '\n';
  }
  return lines.str();
}

void compare(const std::string& name, const std::string& seen) {
  const std::string path = std::string(APPORTION_GOLDEN_DIR) + "/" + name;
  if (std::getenv("APPORTION_UPDATE_GOLDEN") != nullptr) {
    std::ofstream(path) << seen;
    return;
  }
  std::ifstream file(path);
  INFO(path);
  REQUIRE(file.good());
  std::ostringstream expected;
  expected << file.rdbuf();
  CHECK(seen == expected.str());
}

void run_through(Worker& worker) {
  worker.expect("ready");
  worker.go();
  worker.expect("told");
  worker.go();
  worker.expect("result");
}

// A first and a second process of one framework, one whole after the other.
void compare_two(const std::string& name, Bytes device, std::vector<std::string> arguments) {
  const cudasim::TemporaryFolder folder(device_of(device));
  arguments.insert(arguments.end(), {"--device", "sim:" + std::to_string(device / 1_MiB) + "MiB"});
  Worker first(arguments, {{"CUDASIM_DIR", folder.path()}});
  run_through(first);
  Worker second(arguments, {{"CUDASIM_DIR", folder.path()}});
  run_through(second);
  compare(name + "_first.txt", sequence(folder.control(), first.pid()));
  compare(name + "_second.txt", sequence(folder.control(), second.pid()));
}

}  // namespace

TEST_CASE("golden: JAX classic, the first and the second process on 80 GiB, over cuMemAlloc and over VMM") {
  for (const std::string backing : {"mem_alloc", "vmm"}) {
    const cudasim::TemporaryFolder folder(device_of(80_GiB));
    const std::vector<std::string> arguments{"--device", "sim:80GiB", "--backing", backing};
    Worker first(arguments, {{"CUDASIM_DIR", folder.path()}});
    run_through(first);
    Worker second(arguments, {{"CUDASIM_DIR", folder.path()}});
    run_through(second);
    compare("jax_classic_first_" + backing + ".txt", sequence(folder.control(), first.pid()));
    compare("jax_classic_second_" + backing + ".txt", sequence(folder.control(), second.pid()));
  }
}

TEST_CASE("golden: PyTorch native, a small training run that needs its caches given back") {
  const cudasim::TemporaryFolder folder(device_of(1_GiB));
  Worker worker({"--device", "sim:1GiB", "--framework", "pytorch"}, {{"CUDASIM_DIR", folder.path()}});
  run_through(worker);
  const std::string seen = sequence(folder.control(), worker.pid());
  compare("pytorch_native.txt", seen);
  CHECK(seen.find("cuMemAlloc") != std::string::npos);
}

TEST_CASE("golden: PyTorch with expandable segments, the same run, in pages") {
  const cudasim::TemporaryFolder folder(device_of(1_GiB));
  Worker worker({"--device", "sim:1GiB", "--framework", "pytorch-expandable"},
                {{"CUDASIM_DIR", folder.path()}});
  run_through(worker);
  compare("pytorch_expandable.txt", sequence(folder.control(), worker.pid()));
}

TEST_CASE("golden: JAX 0.75+, the first with two steps of growth, the second without room for its prefix") {
  compare_two("jax_growing", 8_GiB,
              {"--framework", "jax-growing", "--growth", std::to_string((128_MiB).value)});
}

TEST_CASE("golden: TensorFlow, the first takes all but what it keeps for libraries, the second the rest") {
  compare_two("tensorflow_greedy", 8_GiB,
              {"--framework", "tensorflow", "--first-request", std::to_string((256_MiB).value)});
}

TEST_CASE("golden: two vLLM side by side, step by step in turn") {
  const cudasim::TemporaryFolder folder(device_of(24_GiB));
  const std::vector<std::string> arguments{"--device", "sim:24GiB",     "--framework",
                                           "vllm",     "--utilization", "0.45"};
  Worker first(arguments, {{"CUDASIM_DIR", folder.path()}});
  Worker second(arguments, {{"CUDASIM_DIR", folder.path()}});
  for (const char* event : {"ready", "told", "step", "step", "result"})
    for (Worker* worker : {&first, &second}) {
      if (std::string(event) != "ready") worker->go();
      worker->expect(event);
    }
  compare("vllm_first.txt", sequence(folder.control(), first.pid()));
  compare("vllm_second.txt", sequence(folder.control(), second.pid()));
}
