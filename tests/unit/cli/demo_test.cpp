#include "cli/demo.hpp"

#include <nlohmann/json.hpp>

#include "cli/demo_stage.hpp"
#include "tests/support/catch.hpp"

using namespace apportion;

namespace {

constexpr std::uint64_t kGiB = 1ULL << 30;

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string refused(const DemoOptions& options) {
  const Result<DemoResult> result = run_demo(options);
  REQUIRE_FALSE(result.ok());
  CHECK(result.error().code == Errc::invalid);
  return result.error().message;
}

DemoResult result_of_two() {
  DemoResult result;
  result.simulated = true;
  result.device_bytes = 80 * kGiB;
  result.pool_bytes = 72 * kGiB;
  result.bare = {{.pid = 11, .told = 80 * kGiB, .wanted = 60 * kGiB, .got = 60 * kGiB, .ok = true},
                 {.pid = 12, .told = 80 * kGiB, .wanted = 60 * kGiB, .got = 17 * kGiB},
                 {.pid = 13, .told = 80 * kGiB, .wanted = 60 * kGiB},
                 {.pid = 14}};
  for (int i = 0; i < 4; ++i)
    result.broker.push_back({.pid = 21 + i,
                             .told = 18 * kGiB,
                             .wanted = 13 * kGiB,
                             .got = 13 * kGiB,
                             .ok = true,
                             .job = "racer",
                             .guarantee = 18 * kGiB,
                             .limit = 18 * kGiB});
  result.orders = 24;
  result.distinct_results = 1;
  result.overlap_bytes = 0;
  return result;
}

}  // namespace

TEST_CASE("demo: wrong options are refused with what is right, before anything is started") {
  CHECK(refused({.clients = 0}) == "--clients 0: 1 to 64");
  CHECK(refused({.clients = 65}) == "--clients 65: 1 to 64");
  CHECK(refused({.break_name = "nothing"}) == "--break nothing: there is \"overlap\"");
  CHECK(refused({.clients = 1, .break_name = "overlap"}) ==
        "--break overlap: needs two clients, and one order");
  CHECK(refused({.all_orders = true, .break_name = "overlap"}) ==
        "--break overlap: needs two clients, and one order");
  CHECK(contains(refused({.device = "sim:lots"}), "\"sim:lots\""));
}

TEST_CASE("demo text: the tables, line for line") {
  CHECK(
      demo_text(result_of_two()) ==
      R"(The race: programs that take memory the way JAX does (75 % of what they are told), all at one barrier, on a simulated device of 80 GiB. Sizes in GiB.

On the bare device:
process   told  wanted    got  verdict
11       80.00   60.00  60.00  ok
12       80.00   60.00  17.00  too little
13       80.00   60.00   0.00  nothing
14           -       -   0.00  no context

Through the broker, which shares a pool of 72 GiB:
process  job    guarantee  limit   told  wanted    got  verdict
21       racer      18.00  18.00  18.00   13.00  13.00  ok
22       racer      18.00  18.00  18.00   13.00  13.00  ok
23       racer      18.00  18.00  18.00   13.00  13.00  ok
24       racer      18.00  18.00  18.00   13.00  13.00  ok

Bare, 1 of 4 got what they wanted; through the broker, 4 of 4, with 1 result in 24 orders and 0 B mapped by two programs at once.
)");
}

TEST_CASE(
    "demo text: results that differ and bytes mapped twice are not hidden, and a real device has no census") {
  DemoResult result = result_of_two();
  result.distinct_results = 3;
  result.overlap_bytes = kGiB;
  CHECK(contains(demo_text(result), "3 different results in 24 orders and 1 GiB mapped by two"));
  result.overlap_bytes.reset();
  result.simulated = false;
  result.orders = 1;
  const std::string text = demo_text(result);
  CHECK_FALSE(contains(text, "mapped by two programs at once"));
  CHECK_FALSE(contains(text, "simulated"));
  CHECK(text.ends_with("3 different results in 1 order.\n"));
}

TEST_CASE("demo: what the broker says of the demo's config cites the line, for the file is gone") {
  const std::string text = "[broker]\npool = \"auto\"\n";
  CHECK(cite("apportiond: /x/a.toml:2: broker.pool: no room\n", "/x/a.toml", text) ==
        "apportiond: the demo's config (pool = \"auto\"): broker.pool: no room\n");
  CHECK(cite("/x/a.toml: no; /x/a.toml:1: no", "/x/a.toml", text) ==
        "the demo's config: no; the demo's config ([broker]): no");
  CHECK(cite("/x/a.toml:99: no", "/x/a.toml", text) == "the demo's config (): no");
  CHECK(cite("/x/a.toml:", "/x/a.toml", text) == "the demo's config:");
  CHECK(cite("another file:1: no", "/x/a.toml", text) == "another file:1: no");
}

TEST_CASE("demo json: a racer without a context has nulls, and the broker's half its job") {
  const nlohmann::json read = nlohmann::json::parse(demo_json(result_of_two()));
  CHECK(read["bare"][3]["told_bytes"].is_null());
  CHECK(read["bare"][3]["got_bytes"].is_null());
  CHECK(read["bare"][2]["got_bytes"] == 0);
  CHECK(read["bare"][1]["ok"] == false);
  CHECK_FALSE(read["bare"][0].contains("job"));
  CHECK(read["broker"][2]["guarantee_bytes"].get<std::uint64_t>() == 18 * kGiB);
  CHECK(read["overlap_bytes"] == 0);
  CHECK(read["distinct_results"] == 1);
  DemoResult real = result_of_two();
  real.overlap_bytes.reset();
  CHECK(nlohmann::json::parse(demo_json(real))["overlap_bytes"].is_null());
}
