// What follows in the core where a chunk cannot be overwritten, where there is no helper, and where one died.
#include "tests/support/catch.hpp"
#include "tests/unit/broker/scrub_story.hpp"

using namespace apportion;
using namespace apportion::testing;
using Kind = Step::Kind;

TEST_CASE("F38: a scrub that fails is asked again, each chunk alone, and never granted without") {
  Story story(three_chunks(), {{"a", 1}, {"b", 2}});
  story.world.attach(0);
  story.world.apply({Kind::request, 0, 2, 2});
  story.world.apply({Kind::helper_fails});  // both
  for (int i = 0; i < 2; ++i) {
    story.world.apply({Kind::helper_fails});  // the first, alone
    CHECK(story.world.client(0).unacked.empty());
    CHECK(story.world.used(0) == 64_MiB);
    CHECK(story.world.core().wants_tick());
    story.world.apply({Kind::tick});
  }
  story.world.apply({Kind::helper_works});
  CHECK(story.world.client(0).unacked.empty());
  story.world.apply({Kind::helper_works});  // the second
  CHECK(story.world.client(0).unacked.size() == 1);
  CHECK(story.world.take_refusals().empty());
}

TEST_CASE("F38: after three failures to find a helper the request is refused, and the book is as before") {
  Story story(three_chunks(), {{"a", 1}, {"b", 2}});
  story.world.attach(0);
  story.world.apply({Kind::request, 0, 2, 2});
  for (int i = 0; i < 3; ++i) {
    story.world.apply({Kind::helper_absent});
    story.world.apply({Kind::tick});
  }
  const std::vector<Refusal> refusals = story.world.take_refusals();
  REQUIRE(refusals.size() == 1);
  CHECK(refusals[0].rule == Refusal::Rule::scrub_failed);
  CHECK(refusals[0].reason.find("tried 3 times: no helper") != std::string::npos);
  CHECK(story.world.used(0) == 0_B);
  CHECK(story.world.core().pool().free == 96_MiB);
  story.idle();
  CHECK_FALSE(story.world.core().wants_tick());  // no loop of tries without an end
  CHECK(story.scrubs_of_taking(0, 2) == 2);      // and the next request tries anew
  CHECK(story.got.size() == 2);
}

TEST_CASE("F38: a chunk that cannot be overwritten fails no neighbour, and is the last to be taken again") {
  Story story(small_setup(4, {{"a", 1, 4}, {"b", 1, 4}}), {{"a", 1}, {"b", 2}});
  story.world.attach(0);
  story.world.attach(1);
  story.world.apply({Kind::request, 0, 2, 2});
  const auto first = story.world.take_actions<actions::ScrubChunks>();
  REQUIRE(first.size() == 1);
  const ChunkId bad = first[0].chunks[0].id;
  story.world.unwritable = {bad};
  story.world.apply({Kind::request, 1, 1, 1});  // another's, asked for meanwhile
  for (int i = 0; i < 4; ++i) {
    story.world.work();
    story.world.apply({Kind::tick});
  }
  CHECK(story.world.take_refusals().empty());
  REQUIRE(story.world.client(0).unacked.size() == 1);  // two good ones
  CHECK(story.world.client(0).unacked[0].ids.size() == 2);
  CHECK_FALSE(as_set(story.world.client(0).unacked[0].ids).contains(bad));
  CHECK(story.world.client(1).unacked.size() == 1);
  CHECK(story.world.core().pool().free == 32_MiB);
  story.world.apply({Kind::ack, 0});
  story.give_back(0);
  static_cast<void>(story.world.take_actions<actions::ScrubChunks>());
  CHECK(story.world.take(0, 2).size() == 2);  // its own, as they are
  CHECK(story.world.take_actions<actions::ScrubChunks>().empty());
  CHECK(story.world.take(0, 1).size() == 1);  // that one is all there is: made anew
  CHECK(story.world.take_actions<actions::ScrubChunks>().size() == 2);
  CHECK(story.world.core().book().find(bad) == nullptr);
}

TEST_CASE("F38: a driver that overwrites nothing is asked a few times, not once for each chunk of the pool") {
  Story story(small_setup(40, {{"a", 1, 40}}), {{"a", 1}});
  story.world.attach(0);
  story.world.apply({Kind::request, 0, 20, 20});
  std::size_t asked = 0;
  while (story.world.client(0).request_pending() && asked < 100) {
    story.world.apply({Kind::helper_fails});
    ++asked;
    story.world.apply({Kind::tick});
  }
  CHECK(asked == 1 + 3 * 3);
  CHECK(story.world.take_refusals().size() == 1);
  CHECK(story.world.core().pool().free == story.world.core().pool().pool);
}

TEST_CASE(
    "F52: what a helper died over is nobody's again before the device shows its room; then it is remade") {
  Story story(small_setup(2, {{"a", 1, 2}}), {{"a", 1}});
  story.world.attach(0);
  story.world.apply({Kind::request, 0, 2, 2});
  const auto first = story.world.take_actions<actions::ScrubChunks>();
  REQUIRE(first.size() == 1);
  story.world.apply({Kind::helper_dies});
  CHECK(story.world.core().pool().zombie == 64_MiB);
  CHECK(story.world.core().pool().in_transit == 64_MiB);
  CHECK(story.world.used(0) == 0_B);
  story.world.work();
  story.world.apply({Kind::read_device});  // it hangs in the kernel yet
  story.world.work();
  CHECK(story.world.core().pool().zombie == 64_MiB);
  CHECK(story.world.core().wants_tick());
  story.world.apply({Kind::helper_memory_back});
  story.world.apply({Kind::read_device});
  story.world.work();
  CHECK(story.world.core().pool().zombie == 0_B);
  CHECK(story.world.take_refusals().empty());
  REQUIRE(story.world.client(0).unacked.size() == 1);
  const std::set<ChunkId> got = as_set(story.world.client(0).unacked[0].ids);
  CHECK(got.size() == 2);
  for (const auto& piece : first[0].chunks)
    CHECK_FALSE(got.contains(piece.id));
}

TEST_CASE("F52: who waits for what a helper died over gets another chunk where there is one") {
  Story story(three_chunks(), {{"a", 1}, {"b", 2}});
  story.world.attach(0);
  story.world.apply({Kind::request, 0, 1, 1});
  story.world.apply({Kind::helper_dies});
  story.world.apply({Kind::helper_works});
  CHECK(story.world.client(0).unacked.size() == 1);
  CHECK(story.world.core().pool().zombie == 32_MiB);
}

TEST_CASE("F52: a request is refused when the room does not come back, and after three helpers in a row") {
  const bool three = GENERATE(false, true);
  Story story(small_setup(3, {{"a", 1, 3}}), {{"a", 1}});
  story.world.attach(0);
  const std::uint64_t chunks = three ? 1 : 3;
  story.world.apply({Kind::request, 0, chunks, chunks});
  for (int i = 0; i < (three ? 3 : 1); ++i) {
    CHECK(story.world.take_refusals().empty());
    story.world.apply({Kind::helper_dies});
  }
  story.world.work();
  if (!three) {
    CHECK(story.world.take_refusals().empty());
    story.world.apply({Kind::tick});
  }
  const std::vector<Refusal> refusals = story.world.take_refusals();
  REQUIRE(refusals.size() == 1);
  CHECK(refusals[0].rule == Refusal::Rule::scrub_failed);
  CHECK(refusals[0].reason.find("before it is granted: the helper died") != std::string::npos);
  CHECK(story.world.used(0) == 0_B);
  CHECK(story.world.core().pool().zombie == 96_MiB);
  story.world.apply({Kind::helper_memory_back});
  story.world.apply({Kind::read_device});
  story.world.work();
  CHECK(story.world.core().pool().free == 96_MiB);
}

TEST_CASE("F52: a strict return that a helper died over is answered, and charged until the device shows it") {
  CoreSetup setup = three_chunks();
  setup.jobs[0].on_return = ReturnRule::strict;
  Story story(setup, {{"a", 1}, {"b", 1}});
  story.world.attach(0);
  story.scrubs_of_taking(0, 1);
  story.world.apply({Kind::release_all, 0});
  story.world.apply({Kind::helper_dies});
  CHECK(story.world.take_actions<actions::SendReleased>().size() == 1);
  story.world.work();
  CHECK(story.world.used(0) == 32_MiB);
  story.world.apply({Kind::helper_memory_back});
  story.world.apply({Kind::read_device});
  story.world.work();
  CHECK(story.world.used(0) == 0_B);
  CHECK(story.world.core().pool().free == 96_MiB);
}

TEST_CASE(
    "F52: a helper that dies while it overwrites ahead is not followed by another before somebody asks") {
  Story story(three_chunks(), {{"a", 1}, {"b", 2}});
  story.world.attach(0);
  story.scrubs_of_taking(0, 1);
  story.idle();
  REQUIRE(story.world.core().pool().in_transit == 64_MiB);
  story.world.apply({Kind::helper_dies});
  story.world.work();
  story.world.apply({Kind::helper_memory_back});
  story.world.apply({Kind::read_device});
  story.world.work();
  static_cast<void>(story.world.take_actions<actions::ScrubChunks>());
  story.idle();
  CHECK(story.world.take_actions<actions::ScrubChunks>().empty());
  CHECK_FALSE(story.world.core().wants_tick());
  CHECK(story.scrubs_of_taking(0, 2) == 2);
}

TEST_CASE("F38: a return that cannot be overwritten stays charged, is answered, and is tried again") {
  CoreSetup setup = three_chunks();
  setup.jobs[0].on_return = ReturnRule::strict;
  Story story(setup, {{"a", 1}, {"b", 1}});
  story.world.attach(0);
  story.scrubs_of_taking(0, 1);
  story.world.apply({Kind::release_all, 0});
  for (int i = 0; i < 5; ++i) {
    story.world.apply({Kind::helper_fails});
    CHECK(story.world.used(0) == 32_MiB);
    story.world.apply({Kind::tick});
  }
  CHECK(story.world.take_actions<actions::SendReleased>().size() == 1);
  std::size_t errors = 0;
  for (const actions::Log& line : story.world.take_actions<actions::Log>())
    errors += line.event == "scrub_failed" ? 1 : 0;
  CHECK(errors <= 1);
  story.world.work();
  CHECK(story.world.used(0) == 0_B);
  CHECK(story.world.core().pool().free == 96_MiB);
}

TEST_CASE("F38: chunks that cannot be overwritten to be unmade fail who waits for their bytes") {
  Story story(small_setup(2, {{"a", 1, 2}, {"b", 1, 2}}), {{"a", 1}, {"b", 2}});
  story.world.attach(0);
  story.scrubs_of_taking(0, 2);
  story.give_back(0);
  story.world.apply({Kind::detach, 0});
  story.world.attach(1);
  story.world.apply({Kind::request, 1, 2, 2});
  const Kind how = GENERATE(Kind::helper_fails, Kind::helper_absent);
  std::size_t asked = 0;
  while (story.world.client(1).request_pending() && asked < 100) {
    story.world.apply({how});
    ++asked;
    story.world.apply({Kind::tick});
  }
  CHECK(asked == (how == Kind::helper_absent ? 3 : 1 + 3 + 3 + 1));
  REQUIRE(story.world.take_refusals().size() == 1);
  story.world.work();
  CHECK(story.world.core().pool().free == 64_MiB);
  story.scrubs_of_taking(1, 2);
  CHECK(story.got.size() == 2);  // and the next request tries anew
}
