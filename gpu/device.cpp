// Opening a device: gpu/device.hpp.
#include "gpu/device.hpp"

#include <array>
#include <cstdio>

#include "gpu/simulator.hpp"

namespace apportion {
namespace {

// Every build of the simulator exports this symbol, and no driver does.
constexpr const char* kSimulatorMark = "cudasim_version";

std::string uuid_text(const CUuuid& uuid, std::string_view name) {
  // The driver does not say whether the bytes name a whole device or a MIG instance; the device's name does.
  std::string text = name.find(" MIG ") != std::string_view::npos ? "MIG" : "GPU";
  for (int i = 0; i < 16; ++i) {
    char digits[4];
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned char>(uuid.bytes[i]));
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += digits;
  }
  return text;
}

bool attribute(const DriverTable& driver, CUdevice_attribute which, CUdevice device) {
  int value = 0;
  return driver.device_get_attribute(&value, which, device) == CUDA_SUCCESS && value != 0;
}

Result<DeviceDescription> read_facts(const DriverTable& driver, CUdevice device) {
  DeviceDescription facts;
  facts.driver_file = driver.file();
  facts.simulated = driver.find(kSimulatorMark) != nullptr;
  if (const CUresult r = driver.driver_get_version(&facts.driver_version); r != CUDA_SUCCESS)
    return driver_error(driver, r, "cuDriverGetVersion");
  std::array<char, 256> text{};
  if (const CUresult r = driver.device_get_name(text.data(), text.size() - 1, device); r != CUDA_SUCCESS)
    return driver_error(driver, r, "cuDeviceGetName");
  facts.name = text.data();
  CUuuid uuid{};
  if (const CUresult r = driver.device_get_uuid(&uuid, device); r != CUDA_SUCCESS)
    return driver_error(driver, r, "cuDeviceGetUuid");
  facts.uuid = uuid_text(uuid, facts.name);
  text.fill('\0');
  if (const CUresult r = driver.device_get_pci_bus_id(text.data(), text.size() - 1, device);
      r != CUDA_SUCCESS)
    return driver_error(driver, r, "cuDeviceGetPCIBusId");
  facts.pci_bus_id = text.data();
  std::size_t total = 0;
  if (const CUresult r = driver.device_total_mem(&total, device); r != CUDA_SUCCESS)
    return driver_error(driver, r, "cuDeviceTotalMem");
  facts.total = Bytes{total};
  facts.integrated = attribute(driver, CU_DEVICE_ATTRIBUTE_INTEGRATED, device);
  facts.vmm = attribute(driver, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device);
  facts.posix_fd = attribute(driver, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, device);
  facts.fabric = attribute(driver, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, device);
  facts.rdma = attribute(driver, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, device);
  facts.kernel_timeout = attribute(driver, CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT, device);
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  std::size_t granularity = 0;
  const CUresult r =
      driver.mem_get_allocation_granularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  if (r != CUDA_SUCCESS) return driver_error(driver, r, "cuMemGetAllocationGranularity");
  facts.granularity = Bytes{granularity};
  return facts;
}

int device_count(const DriverTable& driver) {
  int count = 0;
  return driver.device_get_count(&count) == CUDA_SUCCESS ? count : 0;
}

Error no_such_device(const DriverTable& driver, const DeviceName& name) {
  const std::string list = list_devices(driver);
  return {Errc::not_found, "no device '" + spell(name) + "'; " +
                               (list.empty() ? "this driver shows no device at all (CUDA_VISIBLE_DEVICES?)"
                                             : "this driver shows " + list)};
}

Result<CUdevice> choose(const DriverTable& driver, const DeviceName& name) {
  CUdevice device = 0;
  switch (name.kind) {
    case DeviceName::Kind::simulated:
      break;  // a simulated device is its driver's first
    case DeviceName::Kind::index:
      if (name.index >= static_cast<unsigned>(device_count(driver))) return no_such_device(driver, name);
      device = static_cast<CUdevice>(name.index);
      break;
    case DeviceName::Kind::pci:
      if (driver.device_get_by_pci_bus_id(&device, name.id.c_str()) != CUDA_SUCCESS)
        return no_such_device(driver, name);
      return device;
    case DeviceName::Kind::uuid:
    case DeviceName::Kind::mig:
      for (int i = 0; i < device_count(driver); ++i) {
        CUuuid uuid{};
        if (driver.device_get(&device, i) != CUDA_SUCCESS ||
            driver.device_get_uuid(&uuid, device) != CUDA_SUCCESS)
          continue;
        if (uuid_text(uuid, {}).substr(4) == name.id.substr(4)) return device;
      }
      return no_such_device(driver, name);
  }
  const CUresult r = driver.device_get(&device, device);
  if (r != CUDA_SUCCESS) return no_such_device(driver, name);
  return device;
}

}  // namespace

std::string list_devices(const DriverTable& driver) {
  std::string list;
  for (int i = 0; i < device_count(driver); ++i) {
    CUdevice device = 0;
    if (driver.device_get(&device, i) != CUDA_SUCCESS) continue;
    const auto facts = read_facts(driver, device);
    if (!list.empty()) list += "; ";
    list += std::to_string(i) + ": ";
    list += facts ? facts->name + ", " + to_text(facts->total) + ", " + facts->uuid + ", " + facts->pci_bus_id
                  : facts.error().message;
  }
  return list;
}

Result<Device> Device::open(std::string_view text, std::string_view driver_path) {
  const Result<DeviceName> name = parse_device(text);
  if (!name) return name.error();
  return open(*name, driver_path);
}

Result<Device> Device::open(const DeviceName& name, std::string_view driver_path) {
  const bool simulated = name.kind == DeviceName::Kind::simulated;
  std::string path(driver_path);
  if (simulated) {
    auto prepared = prepare_simulator(name.simulated_size);
    if (!prepared) return prepared.error();
    if (path.empty()) path = *prepared;
  }
  auto table = DriverTable::load(path);
  if (!table) return table.error();
  Device device;
  device.driver_ = std::make_unique<const DriverTable>(*std::move(table));
  const DriverTable& driver = *device.driver_;
  if (simulated && driver.find(kSimulatorMark) == nullptr)
    return Error{Errc::invalid, "device '" + spell(name) + "' needs the simulated driver, and '" +
                                    driver.file() + "' is another; unset APPORTION_DRIVER"};
  if (const CUresult r = driver.init(0); r != CUDA_SUCCESS) {
    Error error = driver_error(driver, r, "cuInit");
    error.message += " (driver " + driver.file() + ")";
    return error;
  }
  auto ordinal = choose(driver, name);
  if (!ordinal) return ordinal.error();
  device.ordinal_ = *ordinal;
  auto facts = read_facts(driver, device.ordinal_);
  if (!facts) return facts.error();
  device.facts_ = *std::move(facts);
  if (simulated && device.facts_.total != name.simulated_size)
    return Error{Errc::invalid, "device '" + spell(name) + "': the simulated device in " +
                                    simulator_folder() + " exists already, with " +
                                    to_text(device.facts_.total) +
                                    "; use that size, remove the folder, or set CUDASIM_DIR to another"};
  return device;
}

}  // namespace apportion
