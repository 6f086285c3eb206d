#include "tests/unit/config/support.hpp"

using namespace apportion;
using namespace apportion::testing;

TEST_CASE("a reload may change jobs, and refuses device, pool, chunk and reserve with file and line") {
  const Config running = parsed("[broker]\ndevice = \"0\"\npool = \"70GiB\"\n[jobs.a]\nshare = \"0.5\"\n");
  CHECK(check_reload(running, running).ok());
  CHECK(check_reload(running, parsed("[broker]\npool = \"70GiB\"\nidle_return = \"1s\"\n[jobs.b]\n")).ok());
  struct Row {
    const char* text;
    const char* start;
  };
  const Row rows[] = {
      {"[broker]\npool = \"70GiB\"\ndevice = \"1\"\n", "apportion.toml:3: broker.device cannot change"},
      {"[broker]\npool = \"60GiB\"\n", "apportion.toml:2: broker.pool cannot change"},
      {"[broker]\n", "apportion.toml:1: broker.pool cannot change"},
      {"[broker]\npool = \"70GiB\"\n\nchunk = \"64MiB\"\n", "apportion.toml:4: broker.chunk cannot change"},
      {"[broker]\npool = \"70GiB\"\nreserve = \"leased\"\n",
       "apportion.toml:3: broker.reserve cannot change"},
  };
  for (const Row& row : rows) {
    const Status status = check_reload(running, parsed(row.text));
    REQUIRE_FALSE(status.ok());
    INFO(status.error().message);
    CHECK(status.error().message.find(row.start) == 0);
  }
}

TEST_CASE("a reload may change the overhead beside a written pool, and not where the pool follows from it") {
  const Config written = parsed("[broker]\npool = \"70GiB\"\n");
  CHECK(check_reload(written, parsed("[broker]\npool = \"70GiB\"\noverhead = \"4GiB\"\n")).ok());
  const Config automatic = parsed("");
  const Status status = check_reload(automatic, parsed("[broker]\noverhead = \"4GiB\"\n"));
  REQUIRE_FALSE(status.ok());
  CHECK(status.error().message.find("apportion.toml:2: broker.overhead cannot change") == 0);
}
