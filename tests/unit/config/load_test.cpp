#include "config/load.hpp"

#include "tests/unit/config/support.hpp"

using namespace apportion;
using namespace apportion::testing;

namespace {

LoadReport loaded(const std::string& text, const DeviceFacts& device) {
  return load(parsed(text), device);
}

std::string refusal(const std::string& text, Bytes total) {
  const LoadReport report = loaded(text, device_of(total));
  return report.ok() ? "no refusal" : report.refusals.front();
}

bool holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

constexpr const char* kRace =
    "[jobs.a]\nshare=\"0.25\"\n[jobs.b]\nshare=\"25%\"\n[jobs.c]\nshare=\"1/4\"\n[jobs.d]\nshare=0.25\n";

}  // namespace

TEST_CASE("80 GiB in four quarters: 2339 chunks, 584 each, 18.25 GiB told, however the quarter is written") {
  const LoadReport report = loaded(kRace, device_of(80_GiB));
  REQUIRE(report.ok());
  CHECK(report.pool_chunks == 2339);
  CHECK(to_text(report.pool) == "73.09 GiB");
  CHECK(report.overhead == Bytes{6'871'947'674});  // 6.4 GiB, rounded up to a byte
  CHECK(report.device.helper_context == 512_MiB);
  CHECK(report.reserve == Reserve::all);
  CHECK(report.warnings.empty());
  REQUIRE(report.jobs.size() == 4);
  for (const JobQuota& job : report.jobs) {
    CHECK(job.guarantee_chunks == 584);
    CHECK(job.limit_chunks == 584);
    CHECK(to_text(job.guarantee) == "18.25 GiB");
    CHECK(job.told == job.guarantee);
    CHECK(job.told_reclaimable == job.limit);
  }
  CHECK(report.pool - report.promised == 96_MiB);
  CHECK(report.pool + report.overhead + report.device.helper_context + report.left == 80_GiB);
  CHECK(report.left < report.chunk);
}

TEST_CASE("overhead auto is 2 GiB or 8 % of the device, and more than what is in use beside a display") {
  DeviceFacts device = device_of(8_GiB);
  CHECK(automatic_overhead(device) == 2_GiB);
  device.total = 25_GiB;
  CHECK(automatic_overhead(device) == 2_GiB);
  device.total = 50_GiB;
  CHECK(automatic_overhead(device) == 4_GiB);
  device.total = Bytes{1000ULL * 1000 * 1000 * 1000};
  CHECK(automatic_overhead(device) == Bytes{80ULL * 1000 * 1000 * 1000});
  device.display = true;
  CHECK(automatic_overhead(device) == 3_GiB);
  device.in_use = 2_GiB;
  CHECK(automatic_overhead(device) == 3584_MiB);
}

TEST_CASE(
    "the pool as written: a fraction of the device rounds down, a size rounds up, the overhead is what "
    "remains") {
  const LoadReport fraction = loaded("[broker]\npool=\"90%\"\n[jobs.a]\n", device_of(80_GiB));
  REQUIRE(fraction.ok());
  CHECK(fraction.pool_chunks == 2304);
  CHECK(fraction.overhead == 80_GiB - fraction.pool - 512_MiB);
  CHECK(fraction.left == 0_B);
  CHECK(fraction.warnings.empty());
  const LoadReport size = loaded("[broker]\npool=\"6000MB\"\n[jobs.a]\n", device_of(80_GiB));
  CHECK(size.pool_chunks == 179);  // 178.8 chunks
  CHECK(size.overhead_rule == "what remains");
}

TEST_CASE("a pool that leaves less than the usual overhead loads with a warning that names the line") {
  const LoadReport report = loaded("[broker]\npool = \"78GiB\"\n[jobs.a]\n", device_of(80_GiB));
  REQUIRE(report.ok());
  CHECK(report.overhead == 1536_MiB);
  REQUIRE(report.warnings.size() == 1);
  CHECK(holds(report.warnings[0], "apportion.toml:2: broker.pool: \"78GiB\" leaves 1.5 GiB"));
  CHECK(holds(report.warnings[0], "6.4 GiB"));
}

TEST_CASE("F40: pool + overhead + helper context above the device is refused with every term") {
  const std::string text = refusal("[broker]\npool = \"70GiB\"\noverhead = \"10GiB\"\n", 80_GiB);
  INFO(text);
  CHECK(text ==
        "apportion.toml:2: broker.pool: pool 70 GiB + overhead 10 GiB + helper context 512 MiB = 80.5 GiB, "
        "above the "
        "device's 80 GiB by 512 MiB; lower pool or overhead");
  CHECK(holds(refusal("[broker]\npool = \"80GiB\"\n", 80_GiB),
              "apportion.toml:2: broker.pool: pool 80 GiB + overhead"));
  CHECK(loaded("[broker]\npool = \"79.5GiB\"\n[jobs.a]\n", device_of(80_GiB)).ok());
  CHECK(holds(refusal("[broker]\npool=\"1.0\"\n", 80_GiB), "by 512 MiB; lower pool"));
}

TEST_CASE("a pool of not even one chunk is refused with the terms") {
  CHECK(
      holds(refusal("", 2_GiB), "apportion.toml: broker.pool: not one chunk of 32MiB is left: device 2 GiB"));
  CHECK(holds(refusal("[broker]\noverhead=\"100GiB\"\n", 80_GiB), "lower overhead"));
  CHECK(holds(refusal("[broker]\nchunk=\"1GiB\"\npool=\"1%\"\n", 80_GiB),
              "apportion.toml:3: broker.pool: not one chunk"));
}

TEST_CASE("F40: guarantees above the pool are refused at the job that passes it, with every term") {
  const std::string text = refusal(
      "[broker]\npool=\"10GiB\"\n[jobs.a]\nguarantee=\"4GiB\"\n[jobs.free]\n[jobs.b]\nguarantee=\"4GiB\"\n"
      "[jobs.c]\nguarantee=\"4GiB\"\n[jobs.d]\nshare=\"10%\"\n",
      80_GiB);
  CHECK(text ==
        "apportion.toml:9: the guarantees a 4 GiB + b 4 GiB + c 4 GiB + d 1 GiB = 13 GiB, above the pool of "
        "10 GiB by "
        "3 GiB (96 chunks); lower one of them");
  CHECK(holds(refusal("[jobs.a]\nshare=\"0.6+\"\n[jobs.b]\nshare=\"0.6+\"\n", 80_GiB),
              "apportion.toml:4: the guarantees"));
  CHECK(holds(refusal("[jobs.a]\nguarantee=\"1TiB\"\n", 80_GiB),
              "a 1 TiB = 1 TiB, above the pool of 73.09 GiB"));
}

TEST_CASE("sizes round up and fractions round down to whole chunks, and the sum still fits") {
  const LoadReport report = loaded(
      "[broker]\npool=\"320MiB\"\n[jobs.a]\nguarantee=\"33MiB\"\nlimit=\"65MiB\"\n[jobs.b]\nshare=\"1/3\"\n",
      device_of(8_GiB));
  REQUIRE(report.ok());
  CHECK(report.jobs[0].guarantee == 64_MiB);
  CHECK(report.jobs[0].limit == 96_MiB);
  CHECK(report.jobs[1].guarantee_chunks == 3);
}

TEST_CASE("C24: a limit above the pool is clamped to it, with a warning that names the line") {
  const LoadReport report =
      loaded("[broker]\npool = \"7GiB\"\n[jobs.a]\nlimit = \"100GiB\"\n", device_of(80_GiB));
  REQUIRE(report.ok());
  CHECK(report.jobs[0].limit == 7_GiB);
  CHECK(report.jobs[0].limit_clamped);
  REQUIRE(report.warnings.size() == 1);
  CHECK(report.warnings[0] ==
        "apportion.toml:4: jobs.a.limit: \"100GiB\" is above the pool of 7 GiB; the pool is the limit");
}

TEST_CASE("no guarantee means 0, no limit means the pool") {
  const LoadReport report = loaded(
      "[jobs.none]\n[jobs.grow]\nshare=\"0.5+\"\n[jobs.g]\nguarantee=\"1GiB\"\n[jobs.l]\nlimit=\"1GiB\"\n",
      device_of(80_GiB));
  REQUIRE(report.ok());
  CHECK(report.find_job("none")->guarantee == 0_B);
  CHECK(report.find_job("none")->limit == report.pool);
  CHECK(report.find_job("grow")->limit == report.pool);
  CHECK(report.find_job("g")->limit == report.pool);
  CHECK(report.find_job("l")->guarantee == 0_B);
  CHECK(report.find_job("other") == nullptr);
}

TEST_CASE("F40: a limit below its guarantee is refused, also where one is a size and the other a fraction") {
  CHECK(holds(error_of("[jobs.a]\nguarantee=\"4GiB\"\nlimit=\"2GiB\"\n"),
              "apportion.toml:3: jobs.a.limit: \"2GiB\" is below the guarantee \"4GiB\""));
  const std::string text =
      refusal("[broker]\npool=\"10GiB\"\n[jobs.a]\nguarantee=\"4GiB\"\nlimit=\"25%\"\n", 80_GiB);
  CHECK(holds(text, "apportion.toml:5: jobs.a.limit: \"25%\" is 2.5 GiB here, below the guarantee of 4 GiB"));
  CHECK(loaded("[broker]\npool=\"10GiB\"\n[jobs.a]\nguarantee=\"4GiB\"\nlimit=\"40%\"\n", device_of(80_GiB))
            .ok());
}

TEST_CASE("a share of less than one chunk is refused, not taken as none") {
  CHECK(holds(
      refusal("[broker]\npool=\"320MiB\"\n[jobs.a]\nshare=\"0.05\"\n", 8_GiB),
      "apportion.toml:4: jobs.a.share: \"0.05\" of the pool of 320 MiB is less than one chunk of 32 MiB"));
  CHECK(holds(refusal("[broker]\npool=\"320MiB\"\n[jobs.a]\nlimit=\"5%\"\n", 8_GiB),
              "apportion.toml:4: jobs.a.limit: \"5%\" of the pool"));
  CHECK(loaded("[jobs.a]\nguarantee=\"0B\"\n", device_of(8_GiB)).ok());
}

TEST_CASE("reserve is leased beside a display and where the memory is the host's, unless it is written") {
  DeviceFacts device = device_of(16_GiB);
  CHECK(loaded("[jobs.a]\n", device).reserve == Reserve::all);
  device.display = true;
  CHECK(loaded("[jobs.a]\n", device).reserve == Reserve::leased);
  device.display = false;
  device.integrated = true;
  CHECK(loaded("[jobs.a]\n", device).reserve == Reserve::leased);
  CHECK(loaded("[broker]\nreserve=\"all\"\n[jobs.a]\n", device).reserve == Reserve::all);
}

TEST_CASE("what programs are told follows the report rule, less the library room") {
  JobConfig job;
  CHECK(told_total(job, 4_GiB, 8_GiB, false) == 4_GiB);
  CHECK(told_total(job, 4_GiB, 8_GiB, true) == 8_GiB);
  CHECK(told_total(job, 0_B, 8_GiB, false) == 8_GiB);
  job.library_room = 1_GiB;
  CHECK(told_total(job, 4_GiB, 8_GiB, false) == 3_GiB);
  job.report = ReportRule::limit;
  CHECK(told_total(job, 4_GiB, 8_GiB, false) == 7_GiB);
  job.report = ReportRule::guarantee;
  CHECK(told_total(job, 4_GiB, 8_GiB, true) == 3_GiB);
  job.library_room = 5_GiB;
  CHECK(told_total(job, 4_GiB, 8_GiB, true) == 0_B);
}

TEST_CASE("a job whose programs would be told nothing is refused") {
  CHECK(holds(refusal("[jobs.a]\nguarantee=\"1GiB\"\nlibrary_room=\"1GiB\"\n", 80_GiB),
              "apportion.toml:3: jobs.a.library_room: \"1GiB\" leaves nothing"));
  CHECK(holds(refusal("[jobs.a]\nreport=\"guarantee\"\n", 80_GiB),
              "apportion.toml:2: jobs.a.report: \"guarantee\" tells programs 0"));
}

TEST_CASE("a chunk the device cannot allocate, and nonsense from a driver, are refused") {
  DeviceFacts device = device_of(80_GiB);
  device.granularity = 4_MiB;
  CHECK(holds(loaded("[broker]\nchunk=\"2MiB\"\n", device).refusals.at(0),
              "apportion.toml:2: broker.chunk: \"2MiB\" is no multiple"));
  for (const Bytes total : {Bytes{0}, Bytes{~0ULL}, kMaxSize + 1_B}) {
    CHECK(holds(loaded("", device_of(total)).refusals.at(0), "check the driver"));
  }
  device = device_of(80_GiB);
  device.granularity = 0_B;
  CHECK_FALSE(loaded("", device).ok());
  device = device_of(80_GiB);
  device.in_use = Bytes{~0ULL};
  CHECK(loaded("[jobs.a]\n", device).ok());
  device.helper_context = Bytes{~0ULL};
  CHECK_FALSE(loaded("[jobs.a]\n", device).ok());
}

TEST_CASE("memory that others hold now is named in a warning when the pool does not fit beside it") {
  DeviceFacts device = device_of(80_GiB);
  device.in_use = 1_GiB;
  CHECK(loaded("[jobs.a]\n", device).warnings.empty());
  device.in_use = 20_GiB;
  const LoadReport report = loaded("[jobs.a]\n", device);
  REQUIRE(report.warnings.size() == 1);
  CHECK(holds(report.warnings[0], "others use 20 GiB of the device now"));
}

TEST_CASE("a config without jobs loads with a warning") {
  const LoadReport report = loaded("", device_of(80_GiB));
  CHECK(report.ok());
  REQUIRE(report.warnings.size() == 1);
  CHECK(holds(report.warnings[0], "no job is named"));
}

TEST_CASE("the table shows every term of the load rule and what each job gets and its programs are told") {
  const LoadReport report =
      loaded("[jobs.a]\nshare=\"25%\"\n[jobs.b]\nguarantee=0.25\nlimit=\"100GiB\"\n", device_of(80_GiB));
  CHECK(to_text(report) == R"(device          80 GiB
pool            73.09 GiB  2339 x 32 MiB, pool = "auto"
overhead        6.4 GiB    max(2 GiB, 8 % of the device)
helper context  512 MiB
left over       6.4 MiB    less than a chunk
reserve         all        no display, memory of its own

JOB  GUARANTEE  LIMIT                 TOLD       TOLD IF RECLAIMABLE  WRITTEN
a    18.25 GiB  18.25 GiB             18.25 GiB  18.25 GiB            share = "25%"
b    18.25 GiB  73.09 GiB (the pool)  18.25 GiB  73.09 GiB            guarantee = "0.25", limit = "100GiB"
sum  36.5 GiB                                                         36.59 GiB of the pool is promised to nobody

warning: apportion.toml:5: jobs.b.limit: "100GiB" is above the pool of 73.09 GiB; the pool is the limit
)");
  // A refusal is an error: said once, and not in the table.
  const LoadReport refused = loaded("[broker]\npool=\"80GiB\"\n", device_of(80_GiB));
  REQUIRE(refused.refusals.size() == 1);
  CHECK_FALSE(holds(to_text(refused), "broker.pool: "));
}

TEST_CASE(
    "property: whatever loads keeps sum of guarantees <= pool, pool + overhead + helper context <= device") {
  std::mt19937_64 random = seeded("load");
  int good = 0;
  for (int i = 0; i < 5000; ++i) {
    const auto amount = [&]() -> Amount {
      if (pick(random, 0, 1) == 1) return Bytes{pick(random, 0, kMaxSize.value) >> pick(random, 8, 50)};
      const std::uint64_t denominator = pick(random, 1, 1000);
      return make_fraction(pick(random, 1, denominator), denominator);
    };
    Config config;
    config.file = "random.toml";
    config.broker.chunk = 2_MiB * (1ULL << pick(random, 0, 9));
    if (pick(random, 0, 1) == 1) config.broker.pool = amount();
    if (pick(random, 0, 3) == 0) config.broker.overhead = amount();
    for (std::uint64_t jobs = pick(random, 0, 8), j = 0; j < jobs; ++j) {
      JobConfig job;
      job.name = "j" + std::to_string(j);
      if (pick(random, 0, 1) == 1) job.guarantee = amount();
      if (pick(random, 0, 1) == 1) job.limit = amount();
      config.jobs.push_back(job);
    }
    DeviceFacts device = device_of(Bytes{pick(random, 1, kMaxSize.value) >> pick(random, 0, 30)});
    device.display = pick(random, 0, 1) == 1;
    device.in_use = Bytes{pick(random, 0, device.total.value)};
    const LoadReport report = load(config, device);
    if (!report.ok()) {
      CHECK(holds(report.refusals.front(), "random.toml: "));
      continue;
    }
    ++good;
    INFO(to_text(report));
    Bytes sum{};
    for (const JobQuota& job : report.jobs) {
      sum += job.guarantee;
      REQUIRE(job.guarantee <= job.limit);
      REQUIRE(job.limit <= report.pool);
      REQUIRE(job.limit > 0_B);
      REQUIRE(job.guarantee == report.chunk * job.guarantee_chunks);
      REQUIRE(job.limit == report.chunk * job.limit_chunks);
    }
    REQUIRE(sum == report.promised);
    REQUIRE(sum <= report.pool);
    REQUIRE(report.pool + report.overhead + device.helper_context + report.left == device.total);
  }
  CHECK(good > 500);  // enough of the random configs are good ones
}

TEST_CASE("property: equal shares that add up to the whole always load, on any device and chunk") {
  std::mt19937_64 random = seeded("equal shares");
  for (int i = 0; i < 2000; ++i) {
    const std::uint64_t parts = pick(random, 1, 64);
    Config config;
    config.broker.chunk = 2_MiB * (1ULL << pick(random, 0, 5));
    for (std::uint64_t j = 0; j < parts; ++j) {
      JobConfig job;
      job.name = "j" + std::to_string(j);
      job.guarantee = make_fraction(1, parts);
      job.limit = job.guarantee;
      config.jobs.push_back(job);
    }
    const LoadReport report = load(config, device_of(Bytes{pick(random, 8ULL << 30, 200ULL << 30)}));
    if (!report.ok()) FAIL(report.refusals.front());
    REQUIRE(report.promised <= report.pool);
    REQUIRE(report.pool - report.promised < config.broker.chunk * parts);
  }
}
