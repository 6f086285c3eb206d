// Opens the slab whose handle (in hex) and size are its arguments, prints the byte at its start, writes 0x77
// there, and closes it; or prints the error and ends with 1. "twice": opens it two times, and prints
// whether both are at one address. "hold": closes it when its standard input ends. A process of its own: the
// one that made a slab cannot open it (rule 33).
#include <cstdio>
#include <cstdlib>
#include <string>

#include "gpu/context.hpp"
#include "gpu/slab.hpp"

using namespace apportion;

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  const auto fail = [](const Error& error) {
    std::printf("%s\n", error.message.c_str());
    return 1;
  };
  const auto device = Device::open(argv[1]);
  if (!device) return fail(device.error());
  const auto context = PrimaryContext::retain(*device);
  if (!context) return fail(context.error());
  IpcHandle handle;
  for (std::size_t i = 0; i < handle.size(); ++i)
    handle[i] = static_cast<std::uint8_t>(std::stoul(std::string(argv[2] + 2 * i, 2), nullptr, 16));
  auto slab = SlabImport::open(*device, handle, Bytes{std::stoull(argv[3])});
  if (!slab) return fail(slab.error());
  const std::string how = argc == 5 ? argv[4] : "";
  if (how == "twice") {
    auto again = SlabImport::open(*device, handle, Bytes{std::stoull(argv[3])});
    if (!again) return fail(again.error());
    std::printf("%s\n", again->address() == slab->address() ? "one address" : "two addresses");
    if (Status closed = again->close(); !closed.ok()) return fail(closed.error());
  }
  unsigned char byte = 0;
  if (device->driver().memcpy_dtoh(&byte, slab->address(), 1) != CUDA_SUCCESS) return 3;
  std::printf("%02x\n", byte);
  byte = 0x77;
  if (device->driver().memcpy_htod(slab->address(), &byte, 1) != CUDA_SUCCESS) return 3;
  std::fflush(stdout);
  while (how == "hold" && std::getchar() != EOF) {
  }
  if (Status closed = slab->close(); !closed.ok()) return fail(closed.error());
  if (!slab->empty() || !slab->close().ok()) return 4;
  return 0;
}
