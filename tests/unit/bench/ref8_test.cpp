#include "bench/peers/ref8.hpp"

#include <algorithm>
#include <cstdio>
#include <map>
#include <random>
#include <vector>

#include "tests/support/catch.hpp"

using apportion::bench::Ref8;

namespace {

// The smallest size of each bin, counted up: 1 .. 15, then 8 equal steps to the next power of two.
std::vector<std::uint64_t> bin_sizes() {
  std::vector<std::uint64_t> sizes;
  for (std::uint64_t size = 1; size < 16; ++size)
    sizes.push_back(size);
  for (std::uint64_t power = 16; power < std::uint64_t{1} << 32; power *= 2)
    for (std::uint64_t step = 0; step < 8; ++step)
      sizes.push_back(power + power / 8 * step);
  return sizes;
}

// The same by search: which free runs there are, and which of them a good fit may take.
class Naive {
 public:
  explicit Naive(std::uint64_t units) { free_[0] = units; }

  // The sizes of free runs that Ref8 may choose from: those of the lowest bin all of whose sizes fit.
  [[nodiscard]] bool may_take(std::uint64_t offset, std::uint64_t units) const {
    const auto run = free_.find(offset);
    return run != free_.end() && run->second >= units && bin_of(run->second) == lowest(units);
  }
  [[nodiscard]] bool may_refuse(std::uint64_t units) const { return lowest(units) == kNone; }

  void take(std::uint64_t offset, std::uint64_t units) {
    const auto run = free_.find(offset);
    const std::uint64_t rest = run->second - units;
    free_.erase(run);
    if (rest != 0) free_[offset + units] = rest;
  }
  void give(std::uint64_t offset, std::uint64_t units) {
    auto run = free_.emplace(offset, units).first;
    if (const auto next = std::next(run); next != free_.end() && offset + units == next->first) {
      run->second += next->second;
      free_.erase(next);
    }
    if (run == free_.begin()) return;
    const auto before = std::prev(run);
    if (before->first + before->second != offset) return;
    before->second += run->second;
    free_.erase(run);
  }
  [[nodiscard]] std::size_t runs() const { return free_.size(); }

 private:
  static constexpr std::size_t kNone = ~std::size_t{0};
  [[nodiscard]] std::size_t bin_of(std::uint64_t units) const {
    return static_cast<std::size_t>(std::upper_bound(sizes_.begin(), sizes_.end(), units) - sizes_.begin()) -
           1;
  }
  [[nodiscard]] std::size_t lowest(std::uint64_t units) const {
    const auto least =
        static_cast<std::size_t>(std::lower_bound(sizes_.begin(), sizes_.end(), units) - sizes_.begin());
    std::size_t found = kNone;
    for (const auto& [offset, size] : free_)
      if (bin_of(size) >= least) found = std::min(found, bin_of(size));
    return found;
  }

  const std::vector<std::uint64_t> sizes_ = bin_sizes();
  std::map<std::uint64_t, std::uint64_t> free_;
};

}  // namespace

TEST_CASE("Ref8 does what a naive search of the same rule does, over 20,000 random steps") {
  const unsigned seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  INFO("seed " << seed);
  std::mt19937 random(seed);
  constexpr std::uint32_t kUnits = 1 << 20;
  Ref8 ref8(kUnits, 4096);
  Naive naive(kUnits);
  std::vector<std::pair<Ref8::Block, std::uint32_t>> live;
  for (int step = 0; step < 20'000; ++step) {
    if (live.size() < 1000 && random() % 100 < 52) {
      const std::uint32_t units = 1 + random() % (random() % 4 == 0 ? 20'000U : 40U);
      const Ref8::Block block = ref8.allocate(units);
      if (block.offset == Ref8::kNone) {
        REQUIRE(naive.may_refuse(units));
      } else {
        REQUIRE(naive.may_take(block.offset, units));
        naive.take(block.offset, units);
        live.emplace_back(block, units);
      }
    } else if (!live.empty()) {
      std::swap(live[random() % live.size()], live.back());
      ref8.free(live.back().first);
      naive.give(live.back().first.offset, live.back().second);
      live.pop_back();
    }
    if (step % 500 == 0) REQUIRE(ref8.check() == "");
  }
  for (const auto& [block, units] : live) {
    ref8.free(block);
    naive.give(block.offset, units);
  }
  CHECK(ref8.check() == "");
  CHECK(naive.runs() == 1);
  CHECK(ref8.free_units() == kUnits);
  CHECK(ref8.allocate(kUnits).offset == 0);  // one run again
}

TEST_CASE("Ref8 refuses when its nodes are used up, and goes on when one is free again") {
  Ref8 ref8(100, 3);
  const Ref8::Block first = ref8.allocate(1);
  const Ref8::Block second = ref8.allocate(1);
  REQUIRE(second.offset == 1);
  CHECK(ref8.allocate(1).offset == Ref8::kNone);
  ref8.free(first);
  CHECK(ref8.check() == "");
  ref8.free(second);
  CHECK(ref8.allocate(1).offset != Ref8::kNone);
}
