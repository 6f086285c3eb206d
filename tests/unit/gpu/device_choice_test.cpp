// Spellings of a device.
#include "gpu/device_choice.hpp"

#include "tests/support/catch.hpp"

using namespace apportion;

TEST_CASE("an index, a UUID, a PCI id and a simulated size are read exactly") {
  auto index = parse_device_choice("12");
  REQUIRE(index.ok());
  CHECK(index->kind == DeviceChoice::Kind::index);
  CHECK(index->index == 12);

  auto uuid = parse_device_choice("GPU-0123ABCD-0000-1111-2222-0123456789ab");
  REQUIRE(uuid.ok());
  CHECK(uuid->kind == DeviceChoice::Kind::uuid);
  CHECK(uuid->name == "GPU-0123abcd-0000-1111-2222-0123456789ab");
  CHECK(parse_device_choice("MIG-0123abcd-0000-1111-2222-0123456789ab")->kind == DeviceChoice::Kind::uuid);

  auto pci = parse_device_choice("65:00.0");
  REQUIRE(pci.ok());
  CHECK(pci->kind == DeviceChoice::Kind::pci);
  CHECK(pci->name == "0000:65:00.0");
  CHECK(parse_device_choice("0000:AF:00.0")->name == "0000:af:00.0");

  auto simulated = parse_device_choice("sim:80GiB");
  REQUIRE(simulated.ok());
  CHECK(simulated->kind == DeviceChoice::Kind::simulated);
  CHECK(simulated->total == 80_GiB);
  CHECK(parse_device_choice("sim:512MiB")->total == 512_MiB);
  CHECK(parse_device_choice("sim:8Gi")->total == 8_GiB);
  CHECK(parse_device_choice("sim:1T")->total == 1024_GiB);
}

TEST_CASE("any other spelling of a device is refused with its text") {
  const char* const wrong[] = {"",
                               "-1",
                               "1e3",
                               " 0",
                               "0 ",
                               "0x1",
                               "99999999999",
                               "gpu0",
                               "GPU-",
                               "GPU-0123",
                               "65:00",
                               "65:00.0.0",
                               "sim:",
                               "sim:80",
                               "sim:0GiB",
                               "sim:-8GiB",
                               "sim:8gib",
                               "sim:8GB ",
                               "sim:1MiB",
                               "sim:65MiB",
                               "sim:99999TiB",
                               "sim:8GiB,8GiB",
                               "sim:1.5GiB",
                               "cuda:0"};
  for (const char* text : wrong) {
    INFO("device '" << text << "'");
    const auto choice = parse_device_choice(text);
    REQUIRE_FALSE(choice.ok());
    CHECK(choice.error().code == Errc::invalid);
    CHECK(choice.error().message.find("'" + std::string(text) + "'") != std::string::npos);
  }
}
