#include "shm/slot_pair.hpp"

#include <atomic>
#include <cstring>
#include <thread>

#include "support.hpp"
#include "tests/support/catch.hpp"

using namespace apportion;
using namespace apportion::testing;

namespace {

// A page in plain memory: what a reader does does not depend on where the bytes lie.
struct Page {
  static constexpr std::size_t kFirstSlot = 64;
  explicit Page(std::size_t payload_words)
      : words((kFirstSlot + 2 * slot_bytes_for(payload_words)) / 8),
        writer(words.data(), kFirstSlot, payload_words, reinterpret_cast<SlotPairHeader*>(words.data())) {}

  [[nodiscard]] Bytes size() const { return {words.size() * 8}; }
  [[nodiscard]] SlotReader reader() const {
    auto opened = SlotReader::open(words.data(), size(), 0);
    REQUIRE(opened.ok());
    return *opened;
  }
  [[nodiscard]] std::uint64_t* slot(std::size_t index) { return words.data() + pair().offset[index] / 8; }
  SlotPairHeader& pair() { return *reinterpret_cast<SlotPairHeader*>(words.data()); }

  std::vector<std::uint64_t> words;
  SlotWriter writer;
};

std::vector<std::uint64_t> filled(std::size_t words, std::uint64_t value) {
  return std::vector<std::uint64_t>(words, value);
}

}  // namespace

TEST_CASE("before the first publication there is nothing to read") {
  Page page(4);
  std::vector<std::uint64_t> payload;
  CHECK(page.reader().read(payload).error().code == Errc::not_found);
}

TEST_CASE("the latest publication is read, whatever its length") {
  Page page(8);
  std::vector<std::uint64_t> payload;
  for (std::uint64_t generation = 1; generation < 20; ++generation) {
    const auto published = filled(generation % 9, generation);
    page.writer.publish(published);
    CHECK(page.reader().read(payload).value() == generation);
    CHECK(payload == published);
  }
}

TEST_CASE("a fixed buffer takes what it has room for and reads zero beyond what was published") {
  Page page(8);
  page.writer.publish(filled(5, 9));
  std::array<std::uint64_t, 3> small{};
  REQUIRE(page.reader().read(small).ok());
  CHECK(small == std::array<std::uint64_t, 3>{9, 9, 9});
  std::array<std::uint64_t, 7> large{1, 1, 1, 1, 1, 1, 1};
  REQUIRE(page.reader().read(large).ok());
  CHECK(large == std::array<std::uint64_t, 7>{9, 9, 9, 9, 9, 0, 0});
}

TEST_CASE("F17: with any bit of the latest slot flipped the other slot is read") {
  Page page(5);
  page.writer.publish(filled(5, 1));
  page.writer.publish(filled(5, 2));
  const std::size_t words = 3 + 5;
  std::uint64_t* slot = page.slot(0);
  std::vector<std::uint64_t> payload;
  for (std::size_t word = 0; word < words; ++word) {
    for (int bit = 0; bit < 64; ++bit) {
      slot[word] ^= std::uint64_t{1} << bit;
      CAPTURE(word, bit);
      REQUIRE(page.reader().read(payload).value() == 1);
      REQUIRE(payload == filled(5, 1));
      slot[word] ^= std::uint64_t{1} << bit;
    }
  }
  CHECK(page.reader().read(payload).value() == 2);
}

TEST_CASE("F17: with the name of the latest slot damaged the newest whole slot is read") {
  Page page(5);
  page.writer.publish(filled(5, 1));
  page.writer.publish(filled(5, 2));
  std::vector<std::uint64_t> payload;
  page.pair().latest = 0xdead'beef;
  CHECK(page.reader().read(payload).value() == 2);
  page.slot(0)[4] ^= 1;
  CHECK(page.reader().read(payload).value() == 1);
  page.slot(1)[4] ^= 1;
  CHECK(page.reader().read(payload).error().code == Errc::protocol);
}

TEST_CASE("F17: slots said to lie outside the page are refused") {
  Page page(5);
  SECTION("offset") {
    page.pair().offset[1] = page.size().value;
  }
  SECTION("offset that wraps") {
    page.pair().offset[0] = ~std::uint64_t{7};
  }
  SECTION("misaligned") {
    page.pair().offset[0] += 4;
  }
  SECTION("length") {
    page.pair().slot_bytes = page.size().value + 8;
  }
  SECTION("no room for a header") {
    page.pair().slot_bytes = 16;
  }
  CHECK(SlotReader::open(page.words.data(), page.size(), 0).error().code == Errc::protocol);
  CHECK(SlotReader::open(page.words.data(), Bytes{16}, 0).error().code == Errc::protocol);
}

TEST_CASE("readers beside a writer that never pauses get whole snapshots that never go back") {
  constexpr std::size_t kWords = 200;
  Page page(kWords);
  page.writer.publish(filled(kWords, 1));
  std::atomic<bool> stop{false};
  std::atomic<int> mixed{0};
  std::atomic<int> backwards{0};
  std::atomic<long> good{0};
  std::vector<std::thread> readers;
  for (int i = 0; i < 2; ++i) {
    readers.emplace_back([&, reader = page.reader()] {  // assertions are the main thread's
      std::vector<std::uint64_t> payload;
      std::uint64_t last = 0;
      while (!stop.load(std::memory_order_relaxed)) {
        const auto generation = reader.read(payload);
        if (!generation.ok()) {
          if (generation.error().code != Errc::busy) ++mixed;
          continue;
        }
        for (const std::uint64_t word : payload) {
          if (word != *generation) ++mixed;
        }
        if (payload.size() != kWords - *generation % 3 && *generation != 1) ++mixed;
        if (*generation < last) ++backwards;
        last = *generation;
        ++good;
      }
    });
  }
  const std::uint64_t seed = 7;
  INFO("seed " << seed);
  Random random(seed);
  std::uint64_t generation = 1;
  while (generation < 5'000 || (good.load() < 500 && generation < 20'000'000)) {
    ++generation;
    page.writer.publish(filled(kWords - generation % 3, generation));
    // From back to back to a few times as long as a reader's copy takes.
    for (std::uint64_t spin = random.below(4'000); spin > 0 && !stop.load(); --spin) {
    }
  }
  stop = true;
  for (std::thread& reader : readers)
    reader.join();
  CHECK(mixed == 0);
  CHECK(backwards == 0);
  CHECK(good >= 500);
}
