#include "shm/bytes.hpp"

#include "tests/support/catch.hpp"

using namespace apportion;

TEST_CASE("sizes print in the largest unit that is not above them, with two decimals at most") {
  CHECK(to_text(0_B) == "0 B");
  CHECK(to_text(1023_B) == "1023 B");
  CHECK(to_text(512_MiB) == "512 MiB");
  CHECK(to_text(Bytes{584ULL * 32 << 20}) == "18.25 GiB");
  CHECK(to_text(2048_GiB) == "2 TiB");
}

TEST_CASE("rounding goes to whole units in both directions") {
  CHECK(round_down(65_MiB, 32_MiB) == 64_MiB);
  CHECK(round_up(65_MiB, 32_MiB) == 96_MiB);
  CHECK(round_up(64_MiB, 32_MiB) == 64_MiB);
  CHECK(saturating_sub(1_MiB, 2_MiB) == 0_B);
}
