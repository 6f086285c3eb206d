// The core against a world that knows the truth: every reachable state of small pools, and random walks of
// larger ones. World::check runs after every step, World::check_journal after every store of the journal.
#include <cstdlib>
#include <iostream>
#include <random>
#include <unordered_set>

#include "tests/support/catch.hpp"
#include "tests/unit/broker/model_reference.hpp"

using namespace apportion;
using namespace apportion::testing;
using Kind = Step::Kind;

namespace {

// Cover falls only with the guarantee in force, or with a shortfall of the device.
struct CoverWatch {
  std::vector<JobFigures> before;
  explicit CoverWatch(const World& world) {
    for (std::size_t j = 0; j < world.core().job_count(); ++j)
      before.push_back(world.core().job_page({static_cast<std::uint32_t>(j)}));
  }
  void compare(const World& world) const {
    for (std::size_t j = 0; j < before.size(); ++j) {
      const JobFigures after = world.core().job_page({static_cast<std::uint32_t>(j)});
      APPORTION_CHECK(after.covered >= std::min(before[j].covered, after.in_force));
    }
  }
};

struct Model {
  const char* name;
  CoreSetup setup;
  std::vector<Place> places;
  std::vector<std::uint64_t> sizes;
};

std::vector<Model> models() {
  std::vector<Model> out;
  out.push_back({"two jobs of one chunk each, pool of three",
                 small_setup(3, {{"a", 1, 3}, {"b", 2, 3}}),
                 {{"a", 1}, {"b", 2}},
                 {1, 2}});
  out.push_back({"one job, two processes", small_setup(2, {{"a", 1, 2}}), {{"a", 1}, {"a", 1}}, {1, 2}});
  out.push_back(
      {"leased", small_setup(3, {{"a", 1, 3}, {"b", 1, 2}}, Reserve::leased), {{"a", 1}, {"b", 2}}, {1, 2}});
  out.push_back({"held always and never lent",
                 small_setup(3, {{"a", 1, 3, 1}, {"b", 1, 3, 0, Hold::always, false}}),
                 {{"a", 1, true}, {"b", 1}},
                 {1, 2}});
  Model trusting{"two jobs of one user, trusted and never overwritten, and one of another",
                 small_setup(2, {{"a", 1, 2}, {"b", 1, 2}}),
                 {{"a", 1}, {"b", 1}, {"b", 2}},
                 {1, 2}};
  trusting.setup.jobs[0].scrub = Scrub::never;
  trusting.setup.jobs[1].on_return = ReturnRule::trusted;
  out.push_back(std::move(trusting));
  Model slabs{"one job of slabs beside one of chunks",
              small_setup(3, {{"a", 1, 3}, {"b", 1, 2}}),
              {{"a", 1}, {"b", 2}},
              {1, 2}};
  slabs.setup.jobs[0].transport = Transport::ipc;
  slabs.setup.own_uid = 1;
  out.push_back(std::move(slabs));
  return out;
}

void follow(World& world, const Step& step, bool prompt) {
  world.apply(step);
  if (prompt) world.work();
}

std::vector<Step> steps_after(const Model& model, const std::vector<Step>& path, bool prompt) {
  World world(model.setup, model.places, false);
  world.instant_helper = false;
  world.checking = false;
  world.start();
  for (const Step& step : path)
    follow(world, step, prompt);
  return world.steps(model.sizes, false);
}

// Printed by each test; APPORTION_SEED repeats a run.
std::uint64_t seed_of_run() {
  const char* given = std::getenv("APPORTION_SEED");
  return given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
}

bool long_run() {
  return std::getenv("APPORTION_LONG") != nullptr;
}

struct Explored {
  std::size_t states = 0;
  bool all = false;
};

// Breadth first over distinct states. With `prompt`, driver and keeper answer at once: then the states can be
// counted to the end; else their answers come at any time, and the search stops at `most_states`.
Explored explore(const Model& model, std::size_t most_states, bool prompt) {
  std::unordered_set<std::string> seen;
  std::deque<std::vector<Step>> frontier{{}};
  while (!frontier.empty() && seen.size() < most_states) {
    const std::vector<Step> path = std::move(frontier.front());
    frontier.pop_front();
    const std::vector<Step> next = steps_after(model, path, prompt);
    for (const Step& step : next) {
      World world(model.setup, model.places, true);
      world.instant_helper = false;
      world.checking = false;
      world.start();
      for (const Step& before : path)
        follow(world, before, prompt);
      world.checking = true;
      const CoverWatch watch(world);
      step_with_reference(world, model.setup, step);
      if (prompt) world.work();
      watch.compare(world);
      if (!seen.insert(world.fingerprint()).second) continue;
      frontier.push_back(path);
      frontier.back().push_back(step);
    }
  }
  return {seen.size(), frontier.empty()};
}

}  // namespace

TEST_CASE("model: every state of small pools that can be reached keeps every invariant") {
  for (const Model& model : models()) {
    INFO(model.name);
    const Explored slow = explore(model, long_run() ? 20000 : 300, false);
    const Explored prompt = explore(model, long_run() ? 100000 : 1000, true);
    std::cout << "model: " << model.name << ": " << slow.states << " states, " << prompt.states
              << " with prompt drivers" << (prompt.all ? " (all there are)" : "") << std::endl;
    CHECK(slow.states >= 300);
    CHECK(prompt.states > 100);
  }
}

TEST_CASE("model: random walks with failing drivers, lost grants and deaths keep every invariant") {
  const std::uint64_t seed = seed_of_run();
  std::cout << "model: random walks, seed " << seed << "\n";
  std::mt19937_64 random(seed);
  const int walks = long_run() ? 2000 : 60;
  for (int walk = 0; walk < walks; ++walk) {
    const Reserve reserve = random() % 3 == 0 ? Reserve::leased : Reserve::all;
    const std::uint64_t chunks = 4 + random() % 3;
    CoreSetup setup = small_setup(
        chunks,
        {{"a", 1 + random() % 2, 4, static_cast<std::int32_t>(random() % 2)},
         {"b", random() % 3, 3, 0, random() % 2 == 0 ? Hold::always : Hold::attached, random() % 2 == 0},
         {"c", 0, chunks}},
        reserve);
    for (JobRule& job : setup.jobs) {
      if (random() % 3 == 0) job.on_return = random() % 2 == 0 ? ReturnRule::strict : ReturnRule::trusted;
      if (random() % 3 == 0) job.scrub = random() % 2 == 0 ? Scrub::always : Scrub::never;
    }
    setup.own_uid = 1;
    if (random() % 2 == 0) setup.jobs[0].transport = Transport::ipc;
    if (random() % 4 == 0) setup.jobs[2].transport = Transport::ipc;
    World world(setup, {{"a", 1}, {"a", 1, true}, {"b", 2}, {"c", 1}}, true);
    world.instant_helper = false;
    world.start();
    const bool failures = random() % 2 == 0;
    for (int i = 0; i < 300; ++i) {
      const std::vector<Step> steps = world.steps({1, 2, 3}, failures);
      const Step step = steps[random() % steps.size()];
      const CoverWatch watch(world);
      step_with_reference(world, setup, step);
      if (!failures) watch.compare(world);
    }
    // Nobody waits for ever.
    for (int i = 0; i < 3; ++i) {
      world.work();
      world.apply({Kind::tick});
    }
    world.work();
    CHECK(!world.any_request_pending());
    // All leave, the device lets go: everything comes back, to the byte.
    for (std::size_t place = 0; place < 4; ++place) {
      if (world.client(place).session) world.apply({Kind::die, place});
    }
    world.work();
    for (std::size_t place = 0; place < 4; ++place)
      world.apply({Kind::memory_back, place});
    world.apply({Kind::helper_memory_back});
    for (int i = 0; i < 4; ++i) {
      world.apply({Kind::tick});
      world.apply({Kind::read_device});
      world.work();
    }
    if (!failures) {
      CHECK(world.core().pool().free == setup.pool);
      CHECK(world.core().pool().charged == 0_B);
      if (reserve == Reserve::all) CHECK(world.core().pool().loose == 0_B);
    }
  }
}

TEST_CASE("model: chunks that cannot be overwritten, and helpers that die, cost no more than they must") {
  const std::uint64_t seed = seed_of_run();
  std::cout << "model: helpers, seed " << seed << "\n";
  std::mt19937_64 random(seed);
  for (int walk = 0; walk < (long_run() ? 1000 : 40); ++walk) {
    CoreSetup setup =
        small_setup(6, {{"a", 2, 6}, {"b", 2, 6}}, random() % 3 == 0 ? Reserve::leased : Reserve::all);
    for (JobRule& job : setup.jobs)
      if (random() % 2 == 0) job.on_return = ReturnRule::strict;
    World world(setup, {{"a", 1}, {"a", 1}, {"b", 2}}, true);
    world.instant_helper = false;
    world.start();
    for (int i = 0; i < 250; ++i) {
      std::vector<Step> steps = world.steps({1, 2, 3}, true);
      std::erase_if(steps, [](const Step& step) {
        return step.kind == Kind::driver_fails || step.kind == Kind::unsent;
      });
      if (random() % 40 == 0) world.spoil(random());
      world.apply(steps[random() % steps.size()]);
    }
    // The helper works again, but for one chunk at most. All leave, and the device lets go.
    for (std::size_t place = 0; place < 3; ++place) {
      if (world.client(place).session) world.apply({Kind::die, place});
    }
    for (int i = 0; i < 12; ++i) {
      world.work();
      for (std::size_t place = 0; place < 3; ++place)
        world.apply({Kind::memory_back, place});
      world.apply({Kind::helper_memory_back});
      world.apply({Kind::tick});
      world.apply({Kind::read_device});
    }
    world.work();
    const Bytes stuck =
        world.core().pool().charged;  // a strict return of the unwritable one is tried for ever
    CHECK(stuck <= (world.unwritable.empty() ? 0_B : kTestChunk));
    CHECK(world.core().pool().free == setup.pool - stuck);
    // Whoever comes gets all but that.
    const std::uint64_t most = stuck.value == 0 ? 5 : 4;
    world.attach(0);
    static_cast<void>(world.take_refusals());
    world.apply({Kind::request, 0, most, most});
    for (int i = 0; i < 20 && world.client(0).request_pending(); ++i) {
      world.work();
      world.apply({Kind::tick});
    }
    for (const Refusal& refusal : world.take_refusals())
      FAIL(refusal.reason);
    REQUIRE(world.client(0).unacked.size() == 1);
    CHECK(world.client(0).unacked[0].ids.size() == most);
  }
}

TEST_CASE("model: while nobody is above its guarantee, every guaranteed request is met") {
  const std::uint64_t seed = seed_of_run();
  std::cout << "model: guarantees, seed " << seed << "\n";
  std::mt19937_64 random(seed);
  for (int walk = 0; walk < (long_run() ? 1000 : 40); ++walk) {
    const CoreSetup setup = small_setup(6, {{"a", 2, 2}, {"b", 3, 3, 1}, {"c", 1, 1}});
    World world(setup, {{"a", 1}, {"a", 1}, {"b", 2}, {"c", 1}}, false);
    world.instant_helper = false;
    world.start();
    for (int i = 0; i < 200; ++i) {
      std::vector<Step> steps = world.steps({1, 2, 3}, false);
      // Death takes memory away until the device shows it: not the subject here.
      std::erase_if(
          steps, [](const Step& step) { return step.kind == Kind::die || step.kind == Kind::request_exact; });
      const Step step = steps[random() % steps.size()];
      std::uint64_t within = 0;
      if (step.kind == Kind::request) {
        const JobFigures page = world.core().job_page(world.job_of(step.place));
        within = page.charged + kTestChunk.value * step.min <= page.guarantee ? step.min : 0;
      }
      bool other_pending = false;  // a request of the same job that is being prepared counts as used
      for (std::size_t place = 0; place < 4; ++place) {
        other_pending = other_pending || (world.client(place).request_pending() &&
                                          world.job_of(place) == world.job_of(step.place));
      }
      static_cast<void>(world.take_refusals());
      world.apply(step);
      if (within == 0 || other_pending) continue;
      world.work();
      // Of another job, one that waited at its limit may be over.
      for (const Refusal& refusal : world.take_refusals())
        REQUIRE(refusal.job != setup.jobs[world.job_of(step.place).value].name);
      REQUIRE(!world.client(step.place).unacked.empty());
      REQUIRE(world.client(step.place).unacked.back().ids.size() >= within);
    }
  }
}
