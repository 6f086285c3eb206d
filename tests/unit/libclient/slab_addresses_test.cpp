#include "libclient/slab_addresses.hpp"

#include "tests/support/catch.hpp"

using namespace apportion;

namespace {
constexpr Address kName = Address{1} << 40;
constexpr Address kReal = 0x7e12'3460'0000;
}  // namespace

TEST_CASE("a slab is found by name and by where it is, from its first byte to its last, and not beyond") {
  SlabAddresses addresses;
  REQUIRE(addresses.add(kName, kReal, 6_MiB).ok());
  for (const Bytes offset : {0_B, 1_B, 2_MiB, 6_MiB - 1_B}) {
    const std::uint64_t at = offset.value;
    CHECK(addresses.real_of(kName + at) == kReal + at);
    CHECK(addresses.name_of(kReal + at) == kName + at);
  }
  for (const Address beside : {kReal - 1, kReal + (6_MiB).value, Address{0}, ~Address{0}})
    CHECK(addresses.name_of(beside) == 0);
  CHECK(addresses.real_of(kName - 1) == 0);
  addresses.remove(kName, kReal, 6_MiB);
  CHECK(addresses.real_of(kName) == 0);
  CHECK(addresses.name_of(kReal + (4_MiB).value) == 0);
}

TEST_CASE("slabs side by side in reality, and a slab over the end of a leaf of the table, keep apart") {
  SlabAddresses addresses;
  constexpr Address kLeaf = Address{16} << 30;  // bytes of addresses that one leaf covers
  const Address real = kReal / kLeaf * kLeaf + kLeaf - (2_MiB).value;
  REQUIRE(addresses.add(kName, real, 4_MiB).ok());
  REQUIRE(addresses.add(kName + (32_MiB).value, real + (4_MiB).value, 2_MiB).ok());
  CHECK(addresses.name_of(real + (3_MiB).value) == kName + (3_MiB).value);
  CHECK(addresses.name_of(real + (4_MiB).value) == kName + (32_MiB).value);
}

TEST_CASE("where a name equals an address, it is found all the same") {
  SlabAddresses addresses;
  REQUIRE(addresses.add(kReal, kReal, 2_MiB).ok());
  CHECK(addresses.real_of(kReal + 5) == kReal + 5);
}

TEST_CASE("what the driver cannot have meant is refused, and changes nothing") {
  SlabAddresses addresses;
  REQUIRE(addresses.add(kName, kReal, 4_MiB).ok());
  CHECK(addresses.add(kName + (64_MiB).value, kReal + (2_MiB).value, 2_MiB).error().code == Errc::driver);
  CHECK(addresses.add(kName + (64_MiB).value, kReal + 512, 2_MiB).error().code == Errc::driver);
  CHECK(addresses.add(kName + (64_MiB).value, SlabAddresses::kEnd, 2_MiB).error().code == Errc::driver);
  CHECK(addresses.real_of(kName + (64_MiB).value) == 0);
  CHECK(addresses.name_of(kReal + (2_MiB).value) == kName + (2_MiB).value);
}
