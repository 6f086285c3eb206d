// NVML over the same device folder as the driver: who the devices are, and whose memory is whose.
#include <poll.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "cudasim/control.hpp"
#include "cudasim/nvml/types.hpp"
#include "tests/unit/cudasim/simulator.hpp"

using namespace cudasim::testing;
using namespace cudasim::nvml;

namespace {

constexpr unsigned long long kMiB = 1 << 20;
constexpr unsigned long long kGiB = 1 << 30;

template <typename... Args>
int nvml(const char* name, Args... args) {
  return nvml_symbol<int (*)(Args...)>(name)(args...);
}

// Initialised, with the handle of device 0.
struct Nvml {
  Device* device = nullptr;
  Nvml() {
    REQUIRE(nvml("nvmlInit_v2") == kSuccess);
    REQUIRE(nvml("nvmlDeviceGetHandleByIndex_v2", 0u, &device) == kSuccess);
  }
  ~Nvml() { (void)nvml("nvmlShutdown"); }
  Nvml(const Nvml&) = delete;

  Memory memory() const {
    Memory out{};
    REQUIRE(nvml("nvmlDeviceGetMemoryInfo", device, &out) == kSuccess);
    return out;
  }
  std::vector<ProcessInfo> processes() const {
    unsigned count = 64;
    std::vector<ProcessInfo> infos(count);
    REQUIRE(nvml("nvmlDeviceGetComputeRunningProcesses_v3", device, &count, infos.data()) == kSuccess);
    infos.resize(count);
    return infos;
  }
  unsigned long long of_process(int pid) const {
    for (const auto& info : processes()) {
      if (static_cast<int>(info.pid) == pid) return info.used_bytes;
    }
    return 0;
  }
};

// NVML tells a little late, so figures are waited for.
template <typename Condition>
bool eventually(Condition condition) {
  for (int i = 0; i < 2000; ++i) {
    if (condition()) return true;
    (void)::poll(nullptr, 0, 5);
  }
  return false;
}

CUmemGenericAllocationHandle create(size_t bytes) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemGenericAllocationHandle handle = 0;
  REQUIRE(DRIVER(cuMemCreate)(&handle, bytes, &properties, 0) == CUDA_SUCCESS);
  return handle;
}

}  // namespace

TEST_CASE("NVML answers nothing before init, and counts inits") {
  Device* device = nullptr;
  unsigned count = 0;
  CHECK(nvml("nvmlDeviceGetCount_v2", &count) == kUninitialized);
  CHECK(nvml("nvmlDeviceGetHandleByIndex_v2", 0u, &device) == kUninitialized);
  CHECK(nvml("nvmlShutdown") == kUninitialized);
  REQUIRE(nvml("nvmlInit_v2") == kSuccess);
  REQUIRE(nvml("nvmlInitWithFlags", 0u) == kSuccess);
  REQUIRE(nvml("nvmlShutdown") == kSuccess);
  CHECK(nvml("nvmlDeviceGetCount_v2", &count) == kSuccess);
  CHECK(count == 1);
  REQUIRE(nvml("nvmlShutdown") == kSuccess);
  CHECK(nvml("nvmlDeviceGetCount_v2", &count) == kUninitialized);
  CHECK(std::string(nvml_symbol<const char* (*)(int)>("nvmlErrorString")(kUninitialized)) == "Uninitialized");
}

TEST_CASE("a program that initialises NVML for each question keeps one mapping of the device folder") {
  const auto mappings = [] {
    std::ifstream maps("/proc/self/maps");
    int count = 0;
    for (std::string line; std::getline(maps, line);)
      count += line.find(device_folder()) != std::string::npos ? 1 : 0;
    return count;
  };
  const auto ask_once = [] {
    REQUIRE(nvml("nvmlInit_v2") == kSuccess);
    REQUIRE(nvml("nvmlShutdown") == kSuccess);
  };
  ask_once();
  const int once = mappings();
  CHECK(once > 0);
  for (int i = 0; i < 20; ++i)
    ask_once();
  CHECK(mappings() == once);
}

TEST_CASE("a device is found by index, UUID and PCI address, and is the driver's device") {
  use_context();
  const Nvml n;
  char uuid[80], name[64], short_text[8];
  REQUIRE(nvml("nvmlDeviceGetUUID", n.device, static_cast<char*>(uuid), 80u) == kSuccess);
  REQUIRE(nvml("nvmlDeviceGetName", n.device, static_cast<char*>(name), 64u) == kSuccess);
  CHECK(nvml("nvmlDeviceGetUUID", n.device, static_cast<char*>(short_text), 8u) == kInsufficientSize);

  CUuuid of_driver{};
  REQUIRE(DRIVER(cuDeviceGetUuid)(&of_driver, 0) == CUDA_SUCCESS);
  std::string expected = "GPU-";
  for (int i = 0; i < 16; ++i) {
    char hex[3];
    std::snprintf(hex, sizeof hex, "%02x", static_cast<unsigned char>(of_driver.bytes[i]));
    if (i == 4 || i == 6 || i == 8 || i == 10) expected += '-';
    expected += hex;
  }
  CHECK(expected == uuid);
  char driver_name[64];
  REQUIRE(DRIVER(cuDeviceGetName)(driver_name, 64, 0) == CUDA_SUCCESS);
  CHECK(std::string(driver_name) == name);

  PciInfo pci{};
  REQUIRE(nvml("nvmlDeviceGetPciInfo_v3", n.device, &pci) == kSuccess);
  char bus_id[16];
  REQUIRE(DRIVER(cuDeviceGetPCIBusId)(bus_id, 16, 0) == CUDA_SUCCESS);
  Device* found = nullptr;
  for (const char* id : {static_cast<const char*>(pci.bus_id), static_cast<const char*>(pci.bus_id_legacy),
                         static_cast<const char*>(bus_id)}) {
    INFO(id);
    found = nullptr;
    CHECK(nvml("nvmlDeviceGetHandleByPciBusId_v2", id, &found) == kSuccess);
    CHECK(found == n.device);
  }
  CHECK(nvml("nvmlDeviceGetHandleByUUID", static_cast<const char*>(uuid), &found) == kSuccess);
  CHECK(found == n.device);
  CHECK(nvml("nvmlDeviceGetHandleByUUID", "GPU-0", &found) == kNotFound);
  CHECK(nvml("nvmlDeviceGetHandleByPciBusId_v2", "0000:FE:00.0", &found) == kNotFound);
  CHECK(nvml("nvmlDeviceGetHandleByPciBusId_v2", "nonsense", &found) == kInvalidArgument);
  CHECK(nvml("nvmlDeviceGetHandleByIndex_v2", 1u, &found) == kInvalidArgument);
  CHECK(nvml("nvmlDeviceGetName", reinterpret_cast<Device*>(&found), static_cast<char*>(name), 64u) ==
        kInvalidArgument);
}

TEST_CASE("memory is told in both versions, and adds up to the device") {
  use_context();
  const Nvml n;
  const Memory memory = n.memory();
  CHECK(memory.total == kGiB);
  CHECK(memory.free + memory.used == memory.total);
  CHECK(memory.used >= 16 * kMiB);  // the context
  MemoryV2 second{};
  CHECK(nvml("nvmlDeviceGetMemoryInfo_v2", n.device, &second) == kArgumentVersionMismatch);
  second.version = kMemoryV2Version;
  REQUIRE(nvml("nvmlDeviceGetMemoryInfo_v2", n.device, &second) == kSuccess);
  CHECK(second.total == kGiB);
  CHECK(second.reserved + second.free + second.used == second.total);
}

TEST_CASE("a process is billed for its context and what it created, rounded up") {
  use_context();
  const Nvml n;
  const int self = ::getpid();
  CHECK(eventually([&] { return n.of_process(self) == 16 * kMiB; }));
  CUdeviceptr small = 0;
  REQUIRE(DRIVER(cuMemAlloc)(&small, 100) == CUDA_SUCCESS);
  const auto handle = create(6 * kMiB);
  CHECK(eventually([&] { return n.of_process(self) == (16 + 2 + 6) * kMiB; }));
  CHECK(eventually([&] { return n.memory().used == (16 + 2 + 6) * kMiB; }));
  REQUIRE(DRIVER(cuMemRelease)(handle) == CUDA_SUCCESS);
  REQUIRE(DRIVER(cuMemFree)(small) == CUDA_SUCCESS);
  CHECK(eventually([&] { return n.of_process(self) == 16 * kMiB; }));

  unsigned none = 0;
  CHECK(nvml("nvmlDeviceGetComputeRunningProcesses_v3", n.device, &none,
             static_cast<ProcessInfo*>(nullptr)) == kInsufficientSize);
  CHECK(none >= 1);
  unsigned room = 8;
  std::vector<ProcessInfoV1> old(room);
  REQUIRE(nvml("nvmlDeviceGetComputeRunningProcesses", n.device, &room, old.data()) == kSuccess);
  CHECK(room == none);
  CHECK(static_cast<int>(old[0].pid) == self);
  CHECK(n.processes()[0].gpu_instance == ~0U);
}

TEST_CASE("rule 41: memory that only an fd holds is used, and billed to nobody") {
  use_context();
  const Nvml n;
  const int self = ::getpid();
  REQUIRE(eventually([&] { return n.memory().used == 16 * kMiB; }));
  const auto handle = create(4 * kMiB);
  int fd = -1;
  REQUIRE(DRIVER(cuMemExportToShareableHandle)(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) ==
          CUDA_SUCCESS);
  REQUIRE(DRIVER(cuMemRelease)(handle) == CUDA_SUCCESS);
  CHECK(eventually([&] { return n.memory().used == 20 * kMiB && n.of_process(self) == 16 * kMiB; }));
  ::close(fd);
  CHECK(eventually([&] { return n.memory().used == 16 * kMiB; }));
}

TEST_CASE("NVML calls are counted, and fail as the control page says") {
  const Nvml n;
  std::string error;
  const auto control = cudasim::Control::open(cudasim::default_folder(), {}, error);
  REQUIRE(control != nullptr);
  const auto before = control->calls("nvmlDeviceGetMemoryInfo");
  (void)n.memory();
  CHECK(control->calls("nvmlDeviceGetMemoryInfo") == before + 1);
  control->set_fault("nvmlDeviceGetMemoryInfo", {.code = kUnknown, .first = 2});
  Memory out{};
  CHECK(nvml("nvmlDeviceGetMemoryInfo", n.device, &out) == kSuccess);
  CHECK(nvml("nvmlDeviceGetMemoryInfo", n.device, &out) == kUnknown);
  CHECK(nvml("nvmlDeviceGetMemoryInfo", n.device, &out) == kSuccess);
  control->clear_faults();
  control->set_lost(0, true);
  CHECK(eventually([&] { return nvml("nvmlDeviceGetMemoryInfo", n.device, &out) == kGpuIsLost; }));
  control->set_lost(0, false);
  CHECK(eventually([&] { return nvml("nvmlDeviceGetMemoryInfo", n.device, &out) == kSuccess; }));
}

TEST_CASE("there is no MIG, no display and no graphics, and persistence is on") {
  const Nvml n;
  unsigned value = 7, pending = 7;
  CHECK(nvml("nvmlDeviceGetMigMode", n.device, &value, &pending) == kNotSupported);
  REQUIRE(nvml("nvmlDeviceGetMaxMigDeviceCount", n.device, &value) == kSuccess);
  CHECK(value == 0);
  REQUIRE(nvml("nvmlDeviceIsMigDeviceHandle", n.device, &value) == kSuccess);
  CHECK(value == 0);
  Device* mig = nullptr;
  CHECK(nvml("nvmlDeviceGetMigDeviceHandleByIndex", n.device, 0u, &mig) == kNotFound);
  REQUIRE(nvml("nvmlDeviceGetPersistenceMode", n.device, &value) == kSuccess);
  CHECK(value == 1);
  REQUIRE(nvml("nvmlDeviceGetDisplayActive", n.device, &value) == kSuccess);
  CHECK(value == 0);
  value = 5;
  REQUIRE(nvml("nvmlDeviceGetGraphicsRunningProcesses_v3", n.device, &value,
               static_cast<ProcessInfo*>(nullptr)) == kSuccess);
  CHECK(value == 0);
}
