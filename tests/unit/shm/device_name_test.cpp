#include "shm/device_name.hpp"

#include "tests/support/catch.hpp"

using namespace apportion;

TEST_CASE("every spelling of a device is told apart and printed back") {
  using Kind = DeviceName::Kind;
  struct Row {
    const char* text;
    Kind kind;
    const char* printed;
  };
  const Row rows[] = {
      {"0", Kind::index, "0"},
      {"15", Kind::index, "15"},
      {"007", Kind::index, "7"},
      {"GPU-01234567-89ab-cdef-0123-456789abcdef", Kind::uuid, "GPU-01234567-89ab-cdef-0123-456789abcdef"},
      {"GPU-01234567-89AB-CDEF-0123-456789ABCDEF", Kind::uuid, "GPU-01234567-89ab-cdef-0123-456789abcdef"},
      {"MIG-01234567-89ab-cdef-0123-456789abcdef", Kind::mig, "MIG-01234567-89ab-cdef-0123-456789abcdef"},
      {"0000:65:00.0", Kind::pci, "0000:65:00.0"},
      {"00000000:65:00.0", Kind::pci, "0000:65:00.0"},
      {"00010000:65:00.0", Kind::pci, "00010000:65:00.0"},
      {"0001:C1:00.0", Kind::pci, "0001:c1:00.0"},
      {"65:00.0", Kind::pci, "0000:65:00.0"},
      {"sim:8GiB", Kind::simulated, "sim:8GiB"},
      {"sim:80Gi", Kind::simulated, "sim:80GiB"},
      {"sim:4096MiB", Kind::simulated, "sim:4GiB"},
      {"sim:66M", Kind::simulated, "sim:66MiB"},
      {"sim:1T", Kind::simulated, "sim:1TiB"},
      {"sim:16TiB", Kind::simulated, "sim:16TiB"},
  };
  for (const Row& row : rows) {
    INFO(row.text);
    const Result<DeviceName> device = parse_device(row.text);
    REQUIRE(device.ok());
    CHECK(device->kind == row.kind);
    CHECK(spell(*device) == row.printed);
    CHECK(parse_device(spell(*device)).value() == *device);
  }
  CHECK(parse_device("3")->index == 3);
  CHECK(parse_device("sim:8GiB")->simulated_size == 8_GiB);
  CHECK(parse_device("sim:512MiB")->simulated_size == 512_MiB);
}

TEST_CASE("what names no device is refused with its text and with what to write") {
  for (const char* text : {"",
                           "-1",
                           "1e3",
                           " 0",
                           "0 ",
                           "0x0",
                           "0,1",
                           "1024",
                           "99999999999",
                           "all",
                           "cuda:0",
                           "gpu0",
                           "GPU-",
                           "GPU-0123",
                           "gpu-01234567-89ab-cdef-0123-456789abcdef",
                           "GPU-01234567-89ab-cdef-0123-456789abcdeg",
                           "MIG-GPU-01234567-89ab-cdef-0123-456789abcdef/1/0",
                           "65:00",
                           "65:00.0.0",
                           "0000:65:00:0",
                           "000:65:00.0",
                           "sim",
                           "sim:",
                           "sim:80",
                           "sim:0GiB",
                           "sim:-8GiB",
                           "sim:8gib",
                           "sim:8GB",
                           "sim:8GiB ",
                           "sim:8GiB,8GiB",
                           "sim:1.5GiB",
                           "sim:50%",
                           "sim:1MiB",
                           "sim:62MiB",
                           "sim:65MiB",
                           "sim:17TiB",
                           "sim:99999999999999999999GiB"}) {
    INFO(text);
    const Result<DeviceName> device = parse_device(text);
    REQUIRE_FALSE(device.ok());
    CHECK(device.error().code == Errc::invalid);
    CHECK(device.error().message.find("\"" + std::string{text} + "\"") == 0);
    CHECK(device.error().message.find("; write ") != std::string::npos);
  }
}
