#include "broker/graveyard.hpp"

#include "tests/support/catch.hpp"

using namespace apportion;

namespace {

constexpr SteadyNs kDeath{1'000'000'000};
constexpr SteadyNs kLater{9'000'000'000};

events::DeviceRoom room(Bytes used, SteadyNs at, std::optional<Bytes> foreign = Bytes{}) {
  return {1_GiB - used, 1_GiB, foreign, at};
}

}  // namespace

TEST_CASE("graveyard: a reading from before the chunk was closed proves nothing") {
  Graveyard graveyard(2_MiB);
  graveyard.add({1}, {1}, 32_MiB, kDeath);
  CHECK(graveyard.settle(room(64_MiB, {kDeath.value - 1}), {64_MiB, 32_MiB, false}).empty());
  CHECK(graveyard.settle(room(64_MiB, kDeath), {64_MiB, 32_MiB, false}).size() == 1);
  CHECK(graveyard.empty());
}

TEST_CASE("graveyard: only as many chunks are settled as the device shows room for") {
  Graveyard graveyard(2_MiB);
  for (std::uint64_t i = 1; i <= 3; ++i)
    graveyard.add({i}, {i}, 32_MiB, kDeath);
  CHECK(graveyard.settle(room(64_MiB + 96_MiB, kLater), {64_MiB, 96_MiB, false}).empty());
  CHECK(graveyard.settle(room(64_MiB + 32_MiB, kLater), {64_MiB, 96_MiB, false}).size() == 2);
}

TEST_CASE("graveyard: contexts of other processes and the device's own reserve are not the pool's") {
  Graveyard graveyard(2_MiB);
  // Quiet: 20 MiB that nobody is named for.
  CHECK(graveyard.settle(room(64_MiB + 20_MiB, {1}), {64_MiB, 0_B, true}).empty());
  graveyard.add({1}, {1}, 32_MiB, kDeath);
  CHECK(graveyard.settle(room(32_MiB + 20_MiB + 32_MiB + 500_MiB, kLater, 500_MiB), {32_MiB, 32_MiB, false})
            .empty());
  CHECK(graveyard.settle(room(32_MiB + 20_MiB + 500_MiB, kLater, 500_MiB), {32_MiB, 32_MiB, false}).size() ==
        1);
}

TEST_CASE("graveyard: a chunk made just before a late reading does not pass for a zombie's room") {
  Graveyard graveyard(2_MiB);
  graveyard.add({1}, {1}, 32_MiB, kDeath);
  graveyard.made(32_MiB, {kLater.value - 1'000'000});
  // The book says 96 alive; the reading shows 96 used: 64 old, 32 zombie, and not yet the new one.
  CHECK(graveyard.settle(room(96_MiB, kLater), {96_MiB, 32_MiB, false}).empty());
  CHECK(graveyard.settle(room(96_MiB, {kLater.value + 1'000'000'000}), {96_MiB, 32_MiB, false}).size() == 1);
}

TEST_CASE("graveyard: figures that are rounded up by less than half a chunk do not keep a zombie for ever") {
  Graveyard graveyard(2_MiB);
  graveyard.add({1}, {1}, 32_MiB, kDeath);
  CHECK(graveyard.settle(room(64_MiB + 2_MiB, kLater), {64_MiB, 32_MiB, false}).size() == 1);
}

TEST_CASE("graveyard: with chunks of several sizes no rounding passes for a chunk") {
  Graveyard graveyard(16_MiB);
  graveyard.add({1}, {1}, 48_MiB, kDeath);
  graveyard.add({2}, {2}, 32_MiB, kDeath);
  const std::vector<ChunkId> settled = graveyard.settle(room(48_MiB, kLater), {0_B, 80_MiB, false});
  REQUIRE(settled.size() == 1);
  CHECK(settled[0] == ChunkId{2});
}

TEST_CASE("graveyard: a context that ended between the two halves of a reading does not hide a zombie") {
  Graveyard graveyard(2_MiB);
  CHECK(graveyard.settle(room(64_MiB + 500_MiB, {1}, 500_MiB), {64_MiB, 0_B, true}).empty());
  // The context of 500 MiB is in what is used, and no more in the list of processes.
  CHECK(graveyard.settle(room(64_MiB + 500_MiB, {2}, 0_B), {64_MiB, 0_B, true}).empty());
  graveyard.add({1}, {1}, 32_MiB, kDeath);
  CHECK(graveyard.settle(room(64_MiB, kLater), {32_MiB, 32_MiB, false}).empty());
  CHECK(graveyard.settle(room(32_MiB, kLater), {32_MiB, 32_MiB, false}).size() == 1);
}

TEST_CASE("graveyard: memory that others took at rest is no zombie, from the second reading on") {
  Graveyard graveyard(2_MiB);
  for (std::int64_t i = 1; i <= 2; ++i) {
    CHECK(graveyard.settle(room(64_MiB, {i}, std::nullopt), {64_MiB, 0_B, true}).empty());
  }
  for (std::int64_t i = 3; i <= 4; ++i) {
    CHECK(graveyard.settle(room(64_MiB + 500_MiB, {i}, std::nullopt), {64_MiB, 0_B, true}).empty());
  }
  graveyard.add({1}, {1}, 32_MiB, kDeath);
  CHECK(graveyard.settle(room(64_MiB + 500_MiB, kLater, std::nullopt), {32_MiB, 32_MiB, false}).empty());
  CHECK(graveyard.settle(room(32_MiB + 500_MiB, kLater, std::nullopt), {32_MiB, 32_MiB, false}).size() == 1);
}

TEST_CASE(
    "graveyard F05: the context of a helper that has ended hides no zombie where no processes are named") {
  Graveyard graveyard(2_MiB);
  const auto with_helper = [](Bytes used, SteadyNs at) {
    events::DeviceRoom one = room(used, at, std::nullopt);
    one.helper = true;
    return one;
  };
  for (std::int64_t i = 1; i <= 3; ++i)
    CHECK(graveyard.settle(with_helper(64_MiB + 512_MiB, {i}), {64_MiB, 0_B, true}).empty());
  graveyard.add({1}, {1}, 32_MiB, kDeath);  // and the helper ends
  CHECK(graveyard.settle(room(64_MiB, kLater, std::nullopt), {32_MiB, 32_MiB, false}).empty());
  CHECK(graveyard.settle(room(32_MiB, kLater, std::nullopt), {32_MiB, 32_MiB, false}).size() == 1);
}

TEST_CASE("graveyard: a late reading after a chunk was unmade is no baseline") {
  Graveyard graveyard(2_MiB);
  graveyard.unmade({kDeath.value - 50'000'000});
  // The device still shows the 32 MiB that the book has let go.
  CHECK(graveyard.settle(room(64_MiB, {kDeath.value - 1}), {32_MiB, 0_B, true}).empty());
  graveyard.add({1}, {1}, 32_MiB, kDeath);
  CHECK(graveyard.settle(room(32_MiB, kLater), {0_B, 32_MiB, false}).empty());
}

TEST_CASE("graveyard: a slab's room is not taken as shown while a reading may still name its helper for it") {
  Graveyard graveyard(2_MiB);
  graveyard.add({1}, {1}, 32_MiB, kDeath);
  graveyard.add_slab({2}, {2}, 32_MiB, kDeath);
  // 50 ms later the device has neither let go; the slab is among what others use, as before it was freed.
  const SteadyNs soon{kDeath.value + 50'000'000};
  CHECK(graveyard.settle(room(64_MiB, soon, 32_MiB), {0_B, 64_MiB, false}).empty());
  // Then the slab is back, and the chunk is not.
  const std::vector<ChunkId> settled = graveyard.settle(room(32_MiB, kLater), {0_B, 64_MiB, false});
  REQUIRE(settled.size() == 1);
  CHECK(graveyard.settle(room(0_B, kLater), {0_B, 32_MiB, false}).size() == 1);
}

TEST_CASE("graveyard: after graves of several sizes, those left are not taken for all that can be held") {
  Graveyard graveyard(16_MiB);
  graveyard.add({1}, {1}, 32_MiB, kDeath);
  graveyard.add({2}, {2}, 32_MiB, kDeath);
  graveyard.add({3}, {3}, 48_MiB, kDeath);  // this one is held all along, which nobody can see
  Bytes zombies = 112_MiB;
  for (int i = 0; i < 3; ++i) {
    for (const ChunkId id : graveyard.settle(room(48_MiB, kLater), {0_B, zombies, false}))
      zombies -= id == ChunkId{3} ? 48_MiB : 32_MiB;
  }
  CHECK(zombies >= 48_MiB);
  CHECK(graveyard.settle(room(0_B, kLater), {0_B, zombies, false}).size() == 2);
  CHECK(graveyard.empty());
}
