#include <algorithm>

#include "config/config.hpp"
#include "config/keys.hpp"
#include "tests/unit/config/support.hpp"

using namespace apportion;
using namespace apportion::testing;

namespace {

bool same(const Config& a, const Config& b) {
  return a.broker == b.broker && a.jobs == b.jobs && a.adhoc == b.adhoc;
}

Config random_config(std::mt19937_64& random) {
  const auto coin = [&] { return pick(random, 0, 1) == 1; };
  const auto amount = [&]() -> Amount {
    if (coin()) return Bytes{pick(random, 1, 1ULL << 40)};
    return make_fraction(pick(random, 1, 1000), 1000);
  };
  const auto duration = [&] { return Duration{static_cast<Duration::rep>(pick(random, 1, 100'000))}; };
  Config config;
  BrokerConfig& broker = config.broker;
  constexpr const char* kDevices[] = {"3", "GPU-01234567-89ab-cdef-0123-456789abcdef", "65:00.0", "sim:8GiB"};
  broker.device = parse_device(kDevices[pick(random, 0, 3)]).value();
  if (coin()) broker.pool = amount();
  broker.chunk = 2_MiB * (1ULL << pick(random, 0, 9));
  if (coin()) broker.reserve = coin() ? Reserve::all : Reserve::leased;
  if (coin()) broker.overhead = amount();
  broker.reclaim_deadline = duration();
  broker.reattach_window = duration();
  broker.idle_return = duration();
  broker.sessions_per_uid = static_cast<std::uint32_t>(pick(random, 1, 1'000'000));
  broker.requests_per_second = static_cast<std::uint32_t>(pick(random, 1, 1'000'000));
  broker.fail_open = coin();
  config.adhoc = {amount(), amount()};
  for (std::uint64_t count = pick(random, 0, 5), i = 0; i < count; ++i) {
    JobConfig job;
    job.name = (coin() ? "a.b-" : "Z_") + std::to_string(i);
    if (coin()) job.limit = amount();
    // A limit below its guarantee would be refused, and is not what is tested here.
    if (coin()) job.guarantee = job.limit ? job.limit : amount();
    job.priority = static_cast<std::int32_t>(pick(random, 0, UINT32_MAX));
    job.hold = coin() ? Hold::attached : Hold::always;
    job.lend = coin();
    job.report = static_cast<ReportRule>(pick(random, 0, 2));
    job.overdue = coin() ? Overdue::deny : Overdue::evict;
    job.library_room = Bytes{pick(random, 0, 1ULL << 32)};
    job.wait = duration();
    job.scrub = static_cast<Scrub>(pick(random, 0, 2));
    job.return_rule = static_cast<ReturnRule>(pick(random, 0, 2));
    job.transport = coin() ? Transport::vmm : Transport::ipc;
    job.serve = coin() ? Serve::credit : Serve::lease;
    if (coin()) job.users.push_back(parse_user_rule("@ml", test_names()).value());
    if (coin()) job.users.push_back(parse_user_rule("1000", test_names()).value());
    config.jobs.push_back(std::move(job));
  }
  return config;
}

}  // namespace

TEST_CASE("an empty file is the defaults of the design's table") {
  const Config config = parsed("");
  CHECK(config.broker == BrokerConfig{});
  CHECK(spell(config.broker.device) == "0");
  CHECK_FALSE(config.broker.pool.has_value());
  CHECK(config.broker.chunk == 32_MiB);
  CHECK_FALSE(config.broker.reserve.has_value());
  CHECK(config.broker.reclaim_deadline == Duration{2000});
  CHECK(config.broker.reattach_window == Duration{5000});
  CHECK(config.broker.idle_return == Duration{30'000});
  CHECK(config.broker.sessions_per_uid == 256);
  CHECK(config.broker.requests_per_second == 1000);
  CHECK_FALSE(config.broker.fail_open);
  CHECK(config.adhoc.max_guarantee == Amount{Fraction{1, 2}});
  CHECK(config.adhoc.max_per_user == Amount{Fraction{1, 2}});
  const Config one_job = parsed("[jobs.a]\n");
  REQUIRE(one_job.jobs.size() == 1);
  const JobConfig& job = one_job.jobs[0];
  CHECK(job.name == "a");
  CHECK_FALSE(job.guarantee.has_value());
  CHECK_FALSE(job.limit.has_value());
  CHECK(job.priority == 0);
  CHECK(job.hold == Hold::attached);
  CHECK(job.lend);
  CHECK(job.report == ReportRule::automatic);
  CHECK(job.overdue == Overdue::deny);
  CHECK(job.library_room == 0_B);
  CHECK(job.wait == Duration{10'000});
  CHECK(job.scrub == Scrub::cross_owner);
  CHECK(job.return_rule == ReturnRule::automatic);
  CHECK(job.transport == Transport::vmm);
  CHECK(job.serve == Serve::credit);
  CHECK(job.users.empty());
}

TEST_CASE("writing a key's default out changes nothing") {
  for (const KeyInfo& key : config_keys()) {
    if (key.default_text == "-") continue;
    const std::string table = key.table == "jobs" ? "[jobs.a]\n" : "[" + key.table + "]\n";
    const std::string written = table + key.name + " = " + key.default_text + "\n";
    INFO(written);
    const Config config = parsed(written);
    const Config silent = parsed(key.table == "jobs" ? "[jobs.a]\n" : "");
    CHECK(config.broker == silent.broker);
    CHECK(config.adhoc == silent.adhoc);
    if (key.table != "jobs") continue;
    // "0B" and "100%" are stored as written and mean what leaving the key out means: compare the quotas.
    const LoadReport quotas = load(config, device_of(80_GiB));
    const LoadReport silent_quotas = load(silent, device_of(80_GiB));
    CHECK(quotas.jobs.at(0).guarantee == silent_quotas.jobs.at(0).guarantee);
    CHECK(quotas.jobs.at(0).limit == silent_quotas.jobs.at(0).limit);
    JobConfig job = config.jobs.at(0);
    if (key.name == "guarantee") job.guarantee.reset();
    if (key.name == "limit") job.limit.reset();
    CHECK(job == silent.jobs.at(0));
  }
}

TEST_CASE("the example of the design is read as it is meant") {
  const Config config = parsed(R"([broker]
device = "0"
pool   = "auto"

[jobs.trainer]
share    = "0.5-0.8"
priority = 10

[jobs.notebook]
guarantee = "4GiB"
limit     = "25%"
users     = ["alice", "@ml", 1000]
)");
  REQUIRE(config.jobs.size() == 2);
  CHECK(config.jobs[0].name == "trainer");
  CHECK(config.jobs[0].guarantee == Amount{Fraction{1, 2}});
  CHECK(config.jobs[0].limit == Amount{Fraction{4, 5}});
  CHECK(config.jobs[0].priority == 10);
  const JobConfig* notebook = config.find_job("notebook");
  REQUIRE(notebook != nullptr);
  CHECK(notebook->guarantee == Amount{4_GiB});
  CHECK(notebook->limit == Amount{Fraction{1, 4}});
  REQUIRE(notebook->users.size() == 3);
  CHECK(notebook->users[1] == UserRule{"@ml", true, 2001});
  CHECK(notebook->users[2].id == 1000);
  CHECK(config.find_job("none") == nullptr);
  CHECK(config.where("jobs.notebook.limit") == "apportion.toml:11");
  CHECK(config.where("jobs.notebook.wait") == "apportion.toml:9");
  CHECK(config.where("adhoc.max_per_user") == "apportion.toml");
}

TEST_CASE("jobs keep the order of the file, and every TOML way to write a job is one") {
  const Config config =
      parsed("jobs.c.share = 0.25\njobs.a = {share = \"1/4\"}\n[jobs.b]\nshare = \"25%+\"\n[jobs.default]\n");
  REQUIRE(config.jobs.size() == 4);
  CHECK(config.jobs[0].name == "c");
  CHECK(config.jobs[1].name == "a");
  CHECK(config.jobs[2].name == "b");
  CHECK(config.jobs[3].name == "default");
  CHECK(config.jobs[0].guarantee == config.jobs[1].guarantee);
  CHECK(config.jobs[0].limit == Amount{Fraction{1, 4}});
  CHECK_FALSE(config.jobs[2].limit.has_value());
}

TEST_CASE("property: a config reads back from its printed form") {
  std::mt19937_64 random = seeded("config print and parse");
  for (int i = 0; i < 500; ++i) {
    const Config config = random_config(random);
    const std::string text = to_toml(config);
    INFO(text);
    const Result<Config> again = parse_config(text, "printed.toml", test_names());
    if (!again) FAIL(again.error().message);
    REQUIRE(same(config, *again));
  }
}

TEST_CASE("F40: every key of every table refuses every value of a wrong type, with file, line and key") {
  constexpr const char* kWrong[] = {"true", "7",   "0.25", "\"\"",       "\"5O%\"",
                                    "[]",   "[1]", "{}",   "1979-05-27", "nan"};
  for (const KeyInfo& key : config_keys()) {
    const std::string table = key.table == "jobs" ? "jobs.a" : key.table;
    int refused = 0;
    for (const char* value : kWrong) {
      const std::string text = "[" + table + "]\n" + key.name + " = " + value + "\n";
      const std::vector<std::string> errors = config_errors(text, "f.toml", test_names());
      INFO(text);
      if (errors.empty()) continue;
      ++refused;
      CHECK(errors[0].find("f.toml:2: " + table + "." + key.name + ": ") == 0);
      CHECK(errors[0].find('\n') == std::string::npos);
    }
    INFO(table << "." << key.name);
    CHECK(refused >= 7);  // at most three of these can be values of one key
  }
}

TEST_CASE("F40: an unknown key is refused everywhere, with the nearest name or the right table") {
  CHECK(error_of("[broker]\npol = \"auto\"\n") ==
        "apportion.toml:2: [broker] has no key \"pol\"; did you mean \"pool\"?");
  CHECK(error_of("[jobs.a]\nguarante = \"1GiB\"\n") ==
        "apportion.toml:2: [jobs.a] has no key \"guarante\"; did you mean \"guarantee\"?");
  CHECK(error_of("[jobs.a]\npool = \"1GiB\"\n") ==
        "apportion.toml:2: [jobs.a] has no key \"pool\"; it belongs in [broker]");
  CHECK(error_of("[broker]\nshare = \"0.5\"\n") ==
        "apportion.toml:2: [broker] has no key \"share\"; it belongs in [jobs.NAME]");
  CHECK(error_of("pool = \"auto\"\n") ==
        "apportion.toml:1: no table or key \"pool\" here; it belongs in [broker]");
  CHECK(error_of("[job.a]\n") == "apportion.toml:1: no table or key \"job\" here; did you mean \"jobs\"?");
  CHECK(error_of("\n\n[gpus]\n") ==
        "apportion.toml:3: no table or key \"gpus\" here; the tables are [broker], [jobs.NAME] and [adhoc]");
  CHECK(error_of("[adhoc]\nzzzzz = 1\n") ==
        "apportion.toml:2: [adhoc] has no key \"zzzzz\"; docs/config.md lists the keys");
}

TEST_CASE("F40: a duplicate job or key is refused at the second one") {
  const std::string twice = error_of("[jobs.a]\nshare = \"0.5\"\n[jobs.a]\nshare = \"0.2\"\n");
  CHECK(twice.find("apportion.toml:3: not valid TOML: ") == 0);
  CHECK(twice.find("in \"[jobs.a]\"") != std::string::npos);
  const std::string key = error_of("[jobs.a]\nshare = \"0.5\"\nshare = \"0.2\"\n");
  CHECK(key.find("apportion.toml:3: not valid TOML: ") == 0);
}

TEST_CASE("names of jobs: what is good, and what is refused with its text") {
  for (const char* good : {"a", "A1", "trainer", "racer-a", "a.b_c-d", "0", "default"})
    CHECK(check_job_name(good).ok());
  CHECK(check_job_name(std::string(63, 'x')).ok());
  CHECK_FALSE(check_job_name(std::string(64, 'x')).ok());
  for (const char* bad :
       {"", "-a", ".a", "_a", "a b", "a/b", "../etc", "a\nb", "caf\xc3\xa9", "a\"b", "a,b"}) {
    INFO(bad);
    CHECK_FALSE(check_job_name(bad).ok());
  }
  CHECK(error_of("[jobs.\"a/b\"]\n").find("apportion.toml:1: [jobs]: \"a/b\" cannot be a job's name") == 0);
}

TEST_CASE("all errors are found in one go, in the order of the file, one line each") {
  const std::vector<std::string> errors = config_errors(
      "[jobs.b]\nshare = 1\nlend = 1\n[broker]\nchunk = \"3MiB\"\nzz = 1\n[jobs.a]\nusers = [\"bob\", "
      "\"@x\"]\n",
      "f.toml", test_names());
  REQUIRE(errors.size() == 6);
  const char* starts[] = {"f.toml:2: ", "f.toml:3: ", "f.toml:5: ", "f.toml:6: ", "f.toml:8: ", "f.toml:8: "};
  for (std::size_t i = 0; i < errors.size(); ++i) {
    INFO(errors[i]);
    CHECK(errors[i].find(starts[i]) == 0);
    CHECK(errors[i].find('\n') == std::string::npos);
  }
}

TEST_CASE("a file that is too large, has too many jobs or is no text is refused in one line") {
  CHECK(error_of(std::string(kMaxConfigBytes + 1, '#')) ==
        "apportion.toml:1: larger than 1 MiB; write a smaller config");
  std::string many;
  for (std::size_t i = 0; i <= kMaxJobs; ++i)
    many += "[jobs.j" + std::to_string(i) + "]\n";
  CHECK(error_of(many).find("apportion.toml:257: more than 256 jobs") == 0);
  for (const std::string& text : {std::string("\xff\xfe\x00", 3), std::string("[jobs.\x1b[2J]"),
                                  std::string("a = "), std::string("[broker"), std::string(2000, '[')}) {
    const std::string error = error_of(text);
    INFO(error);
    CHECK(error.find("apportion.toml:1: not valid TOML: ") == 0);
    CHECK(std::all_of(error.begin(), error.end(), [](char c) { return c >= 0x20 && c < 0x7f; }));
  }
}
