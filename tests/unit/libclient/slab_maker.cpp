// Owns slabs for a fake broker, in a process of its own: the one that made a slab cannot open it (rule 33).
// Reads "make ID BYTES" and "free ID"; answers with the handle in hex, "freed", or the error.
#include <cstdio>
#include <iostream>
#include <map>
#include <string>

#include "gpu/context.hpp"
#include "gpu/slab.hpp"

using namespace apportion;

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const auto device = Device::open(argv[1]);
  if (!device) return 1;
  const auto context = PrimaryContext::retain(*device);
  if (!context) return 1;
  std::map<std::uint64_t, Slab> slabs;
  std::string verb;
  for (std::uint64_t id = 0; std::cin >> verb >> id;) {
    if (verb == "make") {
      std::uint64_t bytes = 0;
      std::cin >> bytes;
      auto slab = Slab::make(*device, Bytes{bytes});
      if (!slab) {
        std::printf("%s\n", slab.error().message.c_str());
      } else {
        for (const std::uint8_t byte : slab->handle())
          std::printf("%02x", byte);
        std::printf("\n");
        slabs[id] = *std::move(slab);
      }
    } else {
      slabs.erase(id);
      std::printf("freed\n");
    }
    std::fflush(stdout);
  }
  return 0;
}
