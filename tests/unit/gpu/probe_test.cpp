// The probe, over the simulated driver.
#include "gpu/probe.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

#include "gpu/probe_text.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/run_program.hpp"
#include "tests/unit/gpu/simulated.hpp"

using namespace apportion;
using apportion::testing::FailingCall;
using apportion::testing::Simulated;

namespace {

const Capability& find(const ProbeReport& report, std::string_view name) {
  const auto found = std::find_if(report.capabilities.begin(), report.capabilities.end(),
                                  [&](const Capability& c) { return c.name == name; });
  REQUIRE(found != report.capabilities.end());
  return *found;
}

}  // namespace

TEST_CASE("rule 43: the probe tries everything, finds the simulated device usable, and leaves nothing") {
  Simulated& sim = Simulated::instance();
  const auto before = sim.left();
  const ProbeReport report = probe(sim.device());
  CHECK(report.usable());
  CHECK(report.why_not().empty());
  for (const Capability& capability : report.capabilities) {
    INFO(capability.name << ": " << capability.detail);
    if (capability.needed) CHECK(capability.works == true);
    CHECK(capability.works.has_value());
  }
  CHECK(sim.left() == before);
}

TEST_CASE(
    "rule 43: an attribute that says yes where the call fails is shown as a lie, with the driver's reason") {
  Simulated& sim = Simulated::instance();
  const auto before = sim.left();
  const FailingCall failing("cuMemExportToShareableHandle", CUDA_ERROR_NOT_SUPPORTED, 1,
                            FailingCall::kForEver);
  const ProbeReport report = probe(sim.device());
  const Capability& exported = find(report, "export as a descriptor");
  CHECK(exported.claimed == true);
  CHECK(exported.works == false);
  CHECK(exported.detail.find("CUDA_ERROR_NOT_SUPPORTED") != std::string::npos);
  CHECK_FALSE(find(report, "import from a descriptor").works.has_value());
  CHECK_FALSE(report.usable());
  CHECK(report.why_not().find("'export as a descriptor' does not work") != std::string::npos);
  CHECK(sim.left() == before);
}

TEST_CASE("a driver without NVML is not usable for a broker, and the probe says so") {
  char folder[] = "/dev/shm/apportion-test-probe-XXXXXX";
  REQUIRE(::mkdtemp(folder) != nullptr);
  const std::string driver = std::string(folder) + "/libcuda.so.1";
  std::filesystem::copy_file(testing::built("cudasim/libcuda.so.1"), driver);
  const auto ran = testing::run_program({testing::built("tests/unit/gpu/open_device"), "--probe", "sim:1GiB"},
                                        {{"APPORTION_DRIVER", driver}});
  std::filesystem::remove_all(folder);
  INFO(ran.output);
  CHECK(ran.status == 1);
  CHECK(ran.output.find("cannot serve this device: 'device memory by NVML' does not work") !=
        std::string::npos);
  CHECK(ran.output.find(std::string(folder) + "/libnvidia-ml.so.1") != std::string::npos);
}

TEST_CASE("the probe with a context tries memory, copies, cudaIpc and streams; as a table and as JSON") {
  const auto ran =
      testing::run_program({testing::built("tests/unit/gpu/open_device"), "--probe", "sim:1GiB"});
  INFO(ran.output);
  REQUIRE(ran.status == 0);
  const auto start = ran.output.rfind("\n{") + 1;
  const std::string table = ran.output.substr(0, start);
  CHECK(table.find("simulated driver") != std::string::npos);
  CHECK(table.find("A broker can serve this device.") != std::string::npos);
  const auto json = nlohmann::json::parse(ran.output.substr(start));
  CHECK(json["usable"] == true);
  CHECK(json["device"]["total_bytes"] == (1_GiB).value);
  CHECK(json["device"]["simulated"] == true);
  for (const char* name :
       {"make a context", "map and set access, with a context", "cuMemAlloc", "memset and copy back",
        "cudaIpc handle", "streams and events", "capture mode of a thread"}) {
    INFO(name);
    const auto found = std::find_if(json["capabilities"].begin(), json["capabilities"].end(),
                                    [&](const nlohmann::json& c) { return c["name"] == name; });
    REQUIRE(found != json["capabilities"].end());
    CHECK((*found)["works"] == true);
    CHECK(table.find(name) != std::string::npos);
  }
}
