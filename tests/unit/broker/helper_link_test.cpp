// The broker's end of the helper, against a program that does what a test says (fake_helper.cpp); and the
// helper's own first moments.
#include "broker/helper_link.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <set>

#include "broker/helper.hpp"
#include "broker/log.hpp"
#include "shm/memfd.hpp"
#include "tests/unit/broker/shell_support.hpp"

using namespace apportion;
using namespace apportion::testing;
using How = events::ScrubFailed::How;

namespace {

constexpr std::chrono::milliseconds kLong{60'000};
constexpr std::chrono::milliseconds kShort{50};

struct Bench {
  explicit Bench(const char* does, HelperSetup setup = {FAKE_HELPER_PROGRAM, kLong, kLong})
      : link(
            loop, {"fake-helper"},
            [this](std::vector<ChunkId> ids, HelperLink::Fds fds) { export_fds(ids, fds); },
            {.scrubbed =
                 [this](const std::vector<ChunkId>& ids, const std::optional<HelperLink::Failure>& failure) {
                   answers.push_back({ids, failure});
                 },
             .slab_made =
                 [this](ChunkId id, const Result<IpcHandle>& made) {
                   slabs.push_back((made.ok() ? "made " : "not made ") + std::to_string(id.value));
                 },
             .slab_freed =
                 [this](ChunkId id, const Status& freed) {
                   slabs.push_back((freed.ok() ? "freed " : "not freed ") + std::to_string(id.value));
                 },
             .slabs_lost =
                 [this](const std::vector<ChunkId>& ids, const std::string&, pid_t) {
                   for (const ChunkId id : ids)
                     slabs.push_back("lost " + std::to_string(id.value));
                 }},
            std::move(setup)) {
    helper(does);
  }
  // What the next helper does.
  static void helper(const char* does) { setenv("FAKE_HELPER", does, 1); }

  void export_fds(const std::vector<ChunkId>& ids, const HelperLink::Fds& done) {
    if (export_fails) return done(Error{Errc::driver, "cannot export"});
    std::vector<Fd> fds;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      Result<Fd> memfd = make_memfd("chunk", 4_KiB);
      REQUIRE(memfd.ok());
      fds.push_back(*std::move(memfd));
    }
    if (bad_fd) fds[0] = Fd(kNoFd);
    done(std::move(fds));
  }
  void scrub(std::uint64_t first, std::size_t count) {
    std::vector<HelperLink::Piece> pieces;
    for (std::size_t i = 0; i < count; ++i)
      pieces.push_back({{first + i}, 4_KiB, false});
    link.scrub(pieces);
  }
  bool wait_answers(std::size_t count) {
    return turn_until(loop, [&] { return answers.size() >= count; });
  }
  bool wait_gone(pid_t pid) {
    return turn_until(loop, [&] { return ::kill(pid, 0) != 0; });
  }

  static constexpr int kNoFd = 1 << 28;  // above any limit
  struct Answered {
    std::vector<ChunkId> ids;
    std::optional<HelperLink::Failure> failure;
  };
  Loop loop;
  std::vector<Answered> answers;
  std::vector<std::string> slabs;  // what was said of them
  bool export_fails = false;
  bool bad_fd = false;
  HelperLink link;
};

}  // namespace

TEST_CASE("helper link: one helper overwrites all that is asked, 64 at a time, and each is answered once") {
  Bench bench("overwrites");
  bench.scrub(1, 100);
  bench.scrub(201, 1);
  REQUIRE(bench.wait_answers(3));
  CHECK(bench.answers[0].ids.size() == 64);
  std::set<std::uint64_t> ids;
  for (const Bench::Answered& each : bench.answers) {
    CHECK_FALSE(each.failure.has_value());
    for (const ChunkId id : each.ids)
      CHECK(ids.insert(id.value).second);
  }
  CHECK(ids.size() == 101);
}

TEST_CASE("F52: helper link: what a helper died over is lost, what waited goes to the next one") {
  Bench bench("dies");
  bench.scrub(1, 2);
  const pid_t first = bench.link.pid();
  REQUIRE(first != 0);
  bench.helper("overwrites");
  bench.scrub(3, 1);
  REQUIRE(bench.wait_answers(2));
  REQUIRE(bench.answers[0].failure.has_value());
  CHECK(bench.answers[0].failure->how == How::lost);
  CHECK(bench.answers[0].failure->why == "the helper died (signal 9)");
  CHECK(bench.answers[0].ids.size() == 2);
  CHECK_FALSE(bench.answers[1].failure.has_value());
  CHECK(bench.link.pid() != first);
}

TEST_CASE("F52: helper link: a helper that dies over chunks takes its slabs with it, each told once") {
  using Said = std::vector<std::string>;
  Bench bench("dies");
  bench.link.make_slab({10}, 2_MiB);
  bench.link.make_slab({11}, 2_MiB);
  REQUIRE(turn_until(bench.loop, [&] { return bench.slabs.size() == 2; }));
  CHECK(bench.slabs == Said{"made 10", "made 11"});
  const pid_t first = bench.link.pid();
  bench.scrub(1, 1);
  bench.link.free_slab({11});  // waits behind it, and has no meaning then
  bench.link.make_slab({12}, 2_MiB);
  bench.helper("overwrites");
  REQUIRE(bench.wait_answers(1));
  CHECK(bench.answers[0].failure->how == How::lost);
  REQUIRE(turn_until(bench.loop, [&] { return bench.slabs.size() == 5; }));
  CHECK(bench.slabs == Said{"made 10", "made 11", "lost 10", "lost 11", "made 12"});
  CHECK(bench.link.pid() != first);
}

TEST_CASE("F52: helper link: one that dies over a slab loses that and no other, and who waits is served") {
  Bench bench("dies over a slab");
  bench.link.make_slab({10}, 2_MiB);
  bench.link.make_slab({11}, 2_MiB);
  bench.helper("overwrites");
  REQUIRE(turn_until(bench.loop, [&] { return bench.slabs.size() == 2; }));
  CHECK(bench.slabs == std::vector<std::string>{"lost 10", "made 11"});
}

TEST_CASE("helper link: a helper stays while it has slabs, through refusals too, and leaves after the last") {
  Bench bench("refuses and goes on", {FAKE_HELPER_PROGRAM, kShort, kLong});
  bench.link.make_slab({10}, 2_MiB);
  bench.scrub(1, 1);
  REQUIRE(bench.wait_answers(1));
  CHECK(bench.answers[0].failure->how == How::refused);
  const pid_t helper = bench.link.pid();
  REQUIRE(helper != 0);
  bool idle_is_over = false;
  const auto timer = bench.loop.after(4 * kShort, [&] { idle_is_over = true; });
  REQUIRE(turn_until(bench.loop, [&] { return idle_is_over; }));
  CHECK(bench.link.pid() == helper);
  bench.link.free_slab({10});
  CHECK(turn_until(bench.loop, [&] { return bench.link.pid() == 0; }));
  CHECK(bench.slabs == std::vector<std::string>{"made 10", "freed 10"});
}

TEST_CASE("F45, F52: helper link: a silent helper is killed, its chunks are lost, and others are served") {
  Bench bench("is silent", {FAKE_HELPER_PROGRAM, kLong, kShort});
  bench.scrub(1, 1);
  const pid_t silent = bench.link.pid();
  bench.helper("overwrites");
  bench.scrub(2, 1);
  REQUIRE(bench.wait_answers(1));
  REQUIRE(bench.answers[0].failure.has_value());
  CHECK(bench.answers[0].failure->how == How::lost);
  CHECK(bench.answers[0].failure->why.find("did not answer for 50 ms") != std::string::npos);
  REQUIRE(bench.wait_answers(2));
  CHECK(bench.wait_gone(silent));
}

TEST_CASE("F52: helper link: one that answers nonsense is killed, and what it was given is lost") {
  for (const char* does : {"answers another request", "says what no helper says"}) {
    INFO(does);
    Bench bench(does);
    bench.scrub(1, 1);
    const pid_t liar = bench.link.pid();
    bench.helper("overwrites");
    bench.scrub(2, 1);
    REQUIRE(bench.wait_answers(2));
    REQUIRE(bench.answers[0].failure.has_value());
    CHECK(bench.answers[0].failure->how == How::lost);
    CHECK_FALSE(bench.answers[1].failure.has_value());
    CHECK(bench.wait_gone(liar));
  }
}

TEST_CASE("F38: helper link: where no helper is to be had, all who wait are told, and no chunk is blamed") {
  for (const char* does : {"has no device", "has no context", "no program"}) {
    INFO(does);
    HelperSetup setup{FAKE_HELPER_PROGRAM, kLong, kLong};
    if (std::string(does) == "no program") setup.program = "/nonexistent/helper";
    Bench bench(does, setup);
    bench.scrub(1, 1);
    bench.scrub(2, 2);
    REQUIRE(bench.wait_answers(2));
    for (const Bench::Answered& each : bench.answers) {
      REQUIRE(each.failure.has_value());
      CHECK(each.failure->how == How::untried);
    }
    bench.scrub(3, 1);  // each time anew
    CHECK(bench.wait_answers(3));
  }
}

TEST_CASE("F38: helper link: what the driver refuses is refused, and the next request has a new helper") {
  Bench bench("is refused by the driver");
  bench.scrub(1, 2);
  const pid_t broken = bench.link.pid();
  bench.helper("overwrites");
  bench.scrub(3, 1);
  REQUIRE(bench.wait_answers(2));
  REQUIRE(bench.answers[0].failure.has_value());
  CHECK(bench.answers[0].failure->how == How::refused);
  CHECK(bench.answers[0].failure->why == "the helper: as it was told");
  CHECK_FALSE(bench.answers[1].failure.has_value());
  CHECK(bench.link.pid() != broken);
}

TEST_CASE("F30: helper link: what cannot be exported or sent is refused alone, and the helper serves on") {
  for (const bool exporting : {true, false}) {
    Bench bench("overwrites");
    bench.scrub(1, 1);
    REQUIRE(bench.wait_answers(1));
    const pid_t helper = bench.link.pid();
    (exporting ? bench.export_fails : bench.bad_fd) = true;
    bench.scrub(2, 2);
    REQUIRE(bench.wait_answers(2));
    REQUIRE(bench.answers[1].failure.has_value());
    CHECK(bench.answers[1].failure->how == How::refused);
    bench.export_fails = bench.bad_fd = false;
    bench.scrub(2, 2);
    REQUIRE(bench.wait_answers(3));
    CHECK_FALSE(bench.answers[2].failure.has_value());
    CHECK(bench.link.pid() == helper);
  }
}

TEST_CASE("F52: helper link: a helper that hung up and hangs is killed; what it was not sent is not lost") {
  Bench bench("hangs after its first");
  bench.scrub(1, 1);
  const pid_t helper = bench.link.pid();
  REQUIRE(bench.wait_answers(1));
  const std::string socket = "/proc/" + std::to_string(helper) + "/fd/3";
  REQUIRE(turn_until(bench.loop, [&] { return access(socket.c_str(), F_OK) != 0; }));
  bench.helper("overwrites");
  bench.scrub(2, 1);
  REQUIRE(bench.wait_answers(2));
  REQUIRE(bench.answers[1].failure.has_value());
  CHECK(bench.answers[1].failure->how == How::untried);
  CHECK(bench.wait_gone(helper));
  bench.scrub(2, 1);
  REQUIRE(bench.wait_answers(3));
  CHECK_FALSE(bench.answers[2].failure.has_value());
}

TEST_CASE("helper link: an idle helper is let go, and ends") {
  Bench bench("overwrites", {FAKE_HELPER_PROGRAM, kShort, kLong});
  bench.scrub(1, 1);
  const pid_t helper = bench.link.pid();
  REQUIRE(bench.wait_answers(1));
  CHECK(turn_until(bench.loop, [&] { return bench.link.pid() == 0; }));
  CHECK(bench.wait_gone(helper));
  bench.scrub(2, 1);
  CHECK(bench.wait_answers(2));
}

TEST_CASE("F11: a helper whose broker is gone before it can know reads nothing of what was left for it") {
  Result<channel::Pair> pair = channel::make_pair();
  REQUIRE(pair.ok());
  Result<Fd> memfd = make_memfd("chunk", 4_KiB);
  REQUIRE(memfd.ok());
  auto scrub = wire::make<wire::Scrub>(1, 0);
  scrub.part.count = 1;
  scrub.entries[0] = {.chunk_id = 1, .bytes = 4096};
  const int fd = memfd->get();
  say(pair->first.get(), scrub, {&fd, 1});
  for (const bool orphan : {true, false}) {
    const pid_t self = getpid();
    const pid_t child = fork();
    if (child == 0) {
      // The broker had the pid that is named; who is its parent now is somebody else.
      const pid_t broker = orphan ? getpid() : self;
      _exit(run_helper(Fd(dup(pair->second.get())), "no-such-device", broker));
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    REQUIRE(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == (orphan ? kHelperOrphan : kHelperNoDevice));
  }
}
