// Opens the device named by its argument and prints its UUID, PCI id, total and driver, one a line, or the
// error and exit status 1. "--probe" first: prints the probe's table and then its JSON instead. A process of
// its own, because a process sees one driver and one device folder for its whole life.
#include <cstdio>
#include <cstring>

#include "gpu/probe_text.hpp"

int main(int argc, char** argv) {
  const bool probing = argc == 3 && std::strcmp(argv[1], "--probe") == 0;
  if (argc != 2 && !probing) return 2;
  auto device = apportion::Device::open(argv[argc - 1]);
  if (!device) {
    std::printf("%s\n", device.error().message.c_str());
    return 1;
  }
  if (probing) {
    const auto report = apportion::probe(*device, {.with_context = true});
    std::printf("%s%s\n", to_table(report).c_str(), to_json(report).c_str());
    return report.usable() ? 0 : 1;
  }
  const apportion::DeviceDescription& facts = device->facts();
  std::printf("%s\n%s\n%llu\n%s\n", facts.uuid.c_str(), facts.pci_bus_id.c_str(),
              static_cast<unsigned long long>(facts.total.value), facts.driver_file.c_str());
  return 0;
}
