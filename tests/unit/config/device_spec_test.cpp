#include "config/device_spec.hpp"

#include "tests/support/catch.hpp"

using namespace apportion;

TEST_CASE("every device spelling is told apart and printed back") {
  using Kind = DeviceSpec::Kind;
  struct Row {
    const char* text;
    Kind kind;
    const char* printed;
  };
  const Row rows[] = {
      {"0", Kind::index, "0"},
      {"15", Kind::index, "15"},
      {"GPU-01234567-89ab-cdef-0123-456789abcdef", Kind::uuid, "GPU-01234567-89ab-cdef-0123-456789abcdef"},
      {"GPU-01234567-89AB-CDEF-0123-456789ABCDEF", Kind::uuid, "GPU-01234567-89ab-cdef-0123-456789abcdef"},
      {"MIG-01234567-89ab-cdef-0123-456789abcdef", Kind::mig, "MIG-01234567-89ab-cdef-0123-456789abcdef"},
      {"0000:65:00.0", Kind::pci, "00000000:65:00.0"},
      {"00000000:65:00.0", Kind::pci, "00000000:65:00.0"},
      {"0001:C1:00.0", Kind::pci, "00000001:c1:00.0"},
      {"65:00.0", Kind::pci, "00000000:65:00.0"},
      {"sim:8GiB", Kind::simulated, "sim:8GiB"},
      {"sim:80Gi", Kind::simulated, "sim:80GiB"},
  };
  for (const Row& row : rows) {
    INFO(row.text);
    const Result<DeviceSpec> device = parse_device(row.text);
    REQUIRE(device.ok());
    CHECK(device->kind == row.kind);
    CHECK(spell(*device) == row.printed);
    CHECK(parse_device(spell(*device)).value() == *device);
  }
  CHECK(parse_device("sim:8GiB")->simulated_size == 8_GiB);
  CHECK(parse_device("3")->index == 3);
}

TEST_CASE("what names no device is refused with its text") {
  for (const char* text : {"",
                           "-1",
                           "cuda:0",
                           "gpu0",
                           "GPU-",
                           "GPU-0123",
                           "gpu-01234567-89ab-cdef-0123-456789abcdef",
                           "GPU-01234567-89ab-cdef-0123-456789abcdeg",
                           "MIG-GPU-01234567-89ab-cdef-0123-456789abcdef/1/0",
                           "99999999999",
                           "1024",
                           "0,1",
                           "sim",
                           "sim:",
                           "sim:0B",
                           "sim:8",
                           "sim:50%",
                           "sim:1MiB",
                           "sim:8GB",
                           "65:00",
                           "0000:65:00:0",
                           "000:65:00.0",
                           "all",
                           "0 ",
                           "0x0"}) {
    INFO(text);
    const Result<DeviceSpec> device = parse_device(text);
    REQUIRE_FALSE(device.ok());
    CHECK(device.error().message.find("\"" + std::string{text} + "\"") == 0);
    CHECK(device.error().message.find("; write ") != std::string::npos);
  }
}
