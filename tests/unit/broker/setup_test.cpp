// From the text of a config to what the core does: every key that docs/config.md says acts now, end to end
// but for the socket.
#include "broker/setup.hpp"

#include "tests/support/catch.hpp"
#include "tests/unit/broker/world.hpp"

using namespace apportion;
using namespace apportion::testing;

namespace {

// A device of 1 GiB whose pool of 256 MiB is 8 chunks.
constexpr const char* kBroker = R"(
[broker]
device = "sim:1GiB"
pool = "256MiB"
chunk = "32MiB"
overhead = "128MiB"
)";

Names nobody_known() {
  Names names;
  names.uid_of = [](const std::string& name) {
    return name == "alice" ? std::optional<std::uint32_t>(1000) : std::nullopt;
  };
  names.gid_of = [](const std::string& name) {
    return name == "ml" ? std::optional<std::uint32_t>(77) : std::nullopt;
  };
  return names;
}

CoreSetup setup_of(const std::string& text) {
  const Result<Config> config = parse_config(text, "apportion.toml", nobody_known());
  if (!config.ok()) FAIL(config.error().message);
  DeviceFacts device;
  device.total = 1_GiB;
  device.granularity = 16_MiB;
  device.helper_context = 64_MiB;
  const LoadReport report = load(*config, device);
  if (!report.ok()) FAIL(report.refusals.front());
  CoreSetup setup = core_setup(*config, report, 1);
  setup.check_every_event = true;
  return setup;
}

std::vector<Bytes> told(World& world) {
  std::vector<Bytes> totals;
  for (const actions::Welcome& welcome : world.take_actions<actions::Welcome>())
    totals.push_back(welcome.told_total);
  return totals;
}

std::string refusal_of(World& world, std::size_t place) {
  world.attach(place);
  const auto refused = world.take_actions<actions::RefuseHello>();
  return refused.empty() ? std::string() : refused.front().error.message;
}

}  // namespace

TEST_CASE("config: pool, chunk, overhead, share, guarantee and limit become the core's quotas") {
  const CoreSetup setup = setup_of(std::string(kBroker) +
                                   "[jobs.a]\nshare = \"0.25-0.5\"\n"
                                   "[jobs.b]\nguarantee = \"40MiB\"\nlimit = \"75%\"\n");
  CHECK(setup.pool == 256_MiB);
  CHECK(setup.chunk == 32_MiB);
  CHECK(setup.granularity == 16_MiB);
  CHECK(setup.overhead == 128_MiB);
  CHECK(setup.device_total == 1_GiB);
  REQUIRE(setup.jobs.size() == 2);
  CHECK(setup.jobs[0].guarantee == 64_MiB);
  CHECK(setup.jobs[0].limit == 128_MiB);
  CHECK(setup.jobs[1].guarantee == 64_MiB);  // a size is rounded up to whole chunks
  CHECK(setup.jobs[1].limit == 192_MiB);
}

TEST_CASE("config: sessions_per_uid counts a user's sessions, and those of no other user") {
  World world(setup_of(std::string(kBroker) + "sessions_per_uid = 2\n[jobs.a]\nshare = \"0.5\"\n"),
              {{"a", 1000}, {"a", 1000}, {"a", 1000}, {"a", 2000}});
  world.start();
  CHECK(refusal_of(world, 0).empty());
  CHECK(refusal_of(world, 1).empty());
  CHECK(refusal_of(world, 2).find("sessions_per_uid") != std::string::npos);
  CHECK(refusal_of(world, 3).empty());
}

TEST_CASE("config: users lets in who is named, by uid and by group, and nobody else") {
  World world(
      setup_of(std::string(kBroker) + "[jobs.a]\nshare = \"0.5\"\nusers = [\"alice\", 1002, \"@ml\"]\n"),
      {{"a", 1000}, {"a", 1001}, {"a", 1002}, {"a", 0}});
  world.start();
  CHECK(refusal_of(world, 0).empty());
  CHECK(refusal_of(world, 1).find("uid 1001 may not join") != std::string::npos);
  CHECK(refusal_of(world, 2).empty());
  CHECK(refusal_of(world, 3).find("uid 0 may not join") != std::string::npos);
  events::SessionWanted member;
  member.connection = {0};
  member.job = "a";
  member.peer = {5, {3, 77}, 50, 1};
  world.feed(member);
  CHECK(world.take_actions<actions::Welcome>().size() == 1);
}

TEST_CASE(
    "config: reserve = leased takes nothing of the device before a lease, reserve = all the whole pool") {
  World leased(setup_of(std::string(kBroker) + "reserve = \"leased\"\n[jobs.a]\nshare = \"0.5\"\n"), {{"a"}});
  leased.start();
  CHECK(leased.physical() == 0_B);
  World all(setup_of(std::string(kBroker) + "reserve = \"all\"\n[jobs.a]\nshare = \"0.5\"\n"), {{"a"}});
  all.start();
  CHECK(all.physical() == 256_MiB);
}

TEST_CASE("config: hold = always keeps a guarantee from others while its job is away, attached does not") {
  const auto got_by_other = [](const char* hold) {
    World world(setup_of(std::string(kBroker) + "[jobs.away]\nguarantee = \"50%\"\nhold = \"" + hold +
                         "\"\n[jobs.here]\nguarantee = \"25%\"\n"),
                {{"here"}});
    world.start();
    world.attach(0);
    std::size_t chunks = 0;
    while (!world.take(0, 1).empty())
      ++chunks;
    return chunks;
  };
  CHECK(got_by_other("always") == 4);
  CHECK(got_by_other("attached") == 8);
}

TEST_CASE(
    "config: report and library_room decide the total that a program is told, and nothing it can take") {
  World world(
      setup_of(std::string(kBroker) + "[jobs.auto]\nshare = \"0.25-0.5\"\n"
                                      "[jobs.limit]\nshare = \"0.25-0.5\"\nreport = \"limit\"\n"
                                      "[jobs.guarantee]\nshare = \"0.25-0.5\"\nreport = \"guarantee\"\n"
                                      "[jobs.room]\nshare = \"0.25-0.5\"\nlibrary_room = \"20MiB\"\n"
                                      "[jobs.none]\nlimit = \"0.5\"\n"),
      {{"auto"}, {"auto", 1, true}, {"limit"}, {"guarantee", 1, true}, {"room"}, {"none"}});
  world.start();
  for (std::size_t place = 0; place < 6; ++place)
    world.attach(place);
  CHECK(told(world) == std::vector<Bytes>{64_MiB, 128_MiB, 128_MiB, 64_MiB, 44_MiB, 128_MiB});
  CHECK(world.take(4, 2).size() == 2);  // its guarantee whole, library_room notwithstanding
}

TEST_CASE("config: return = strict unmakes what comes back, the default keeps it for its owner") {
  const auto handles_after_return = [](const char* extra) {
    World world(setup_of(std::string(kBroker) + "[jobs.a]\nshare = \"0.5\"\n" + extra), {{"a"}});
    world.start();
    world.attach(0);
    world.take(0, 2);
    static_cast<void>(world.take_actions<actions::UnmakeChunk>());
    world.apply({Step::Kind::release_all, 0});
    world.work();
    return world.take_actions<actions::UnmakeChunk>().size();
  };
  CHECK(handles_after_return("return = \"strict\"\n") == 2);
  CHECK(handles_after_return("") == 0);
}
