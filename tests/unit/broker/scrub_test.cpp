// Overwriting in the core: who gets which chunk, what is overwritten for whom, and what follows where that
// fails. The helper is a queue in a test's hands (World).
#include <algorithm>

#include "tests/support/catch.hpp"
#include "tests/unit/broker/world.hpp"

using namespace apportion;
using namespace apportion::testing;
using Kind = Step::Kind;

namespace {

// A world whose helper does nothing until it is told to, and whose driver is prompt.
struct Story {
  explicit Story(CoreSetup setup, std::vector<Place> places) : world(std::move(setup), std::move(places)) {
    world.instant_helper = false;
    world.start();
  }
  // What one request had overwritten.
  std::size_t scrubs_of_taking(std::size_t place, std::uint64_t chunks) {
    static_cast<void>(world.take_actions<actions::ScrubChunks>());
    got = world.take(place, chunks);
    std::size_t count = 0;
    for (const actions::ScrubChunks& scrub : world.take_actions<actions::ScrubChunks>())
      count += scrub.chunks.size();
    return count;
  }
  void give_back(std::size_t place) {
    world.apply({Kind::release_all, place});
    world.work();
  }
  // Ten seconds, and what comes of them.
  void idle() {
    world.apply({Kind::tick});
    world.apply({Kind::tick});
  }
  World world;
  std::vector<ChunkId> got;
};

std::set<ChunkId> as_set(const std::vector<ChunkId>& ids) {
  return {ids.begin(), ids.end()};
}

CoreSetup three_chunks() {
  return small_setup(3, {{"a", 1, 3}, {"b", 1, 3}});
}

}  // namespace

TEST_CASE("scrub: a new chunk is overwritten before its first grant, and charged to who waits for it") {
  Story story(three_chunks(), {{"a", 1}, {"b", 2}});
  story.world.attach(0);
  story.world.apply({Kind::request, 0, 2, 2});
  CHECK(story.world.client(0).unacked.empty());
  CHECK(story.world.used(0) == 64_MiB);
  CHECK(story.world.core().pool().in_transit == 0_B);
  CHECK(story.world.core().job_page(story.world.job_of(0)).used == 0);  // not its own yet
  story.world.apply({Kind::helper_works});
  REQUIRE(story.world.client(0).unacked.size() == 1);
  CHECK(story.world.client(0).unacked[0].ids.size() == 2);
}

TEST_CASE("scrub: the same job and user get their own back as it is, others what was overwritten for them") {
  Story story(three_chunks(), {{"a", 1}, {"b", 1}});
  story.world.attach(0);
  CHECK(story.scrubs_of_taking(0, 2) == 2);
  const std::vector<ChunkId> first = story.got;
  story.give_back(0);
  CHECK(story.scrubs_of_taking(0, 2) == 0);
  CHECK(as_set(story.got) == as_set(first));
  story.give_back(0);
  story.world.apply({Kind::detach, 0});
  story.world.attach(1);
  CHECK(story.scrubs_of_taking(1, 3) == 3);  // another job of one user: trusted, so kept
  CHECK(as_set(story.got).contains(first[0]));
  CHECK(as_set(story.got).contains(first[1]));
}

TEST_CASE(
    "scrub: across users a chunk is overwritten, unmade, made and overwritten; with return = trusted kept") {
  for (const bool trusted : {false, true}) {
    CoreSetup setup = small_setup(2, {{"a", 1, 2}, {"b", 1, 2}});
    if (trusted) setup.jobs[0].on_return = ReturnRule::trusted;
    Story story(setup, {{"a", 1}, {"b", 2}});
    story.world.attach(0);
    story.scrubs_of_taking(0, 2);
    const std::vector<ChunkId> first = story.got;
    story.give_back(0);
    story.world.apply({Kind::detach, 0});
    story.world.attach(1);
    CHECK(story.scrubs_of_taking(1, 2) == (trusted ? 2 : 4));
    CHECK(as_set(story.got).contains(first[0]) == trusted);
  }
}

TEST_CASE("scrub: what a user's process may have kept stays with that user, whoever of his had it since") {
  CoreSetup setup = small_setup(1, {{"a", 1, 1}, {"b", 0, 1}, {"c", 0, 1}});
  setup.jobs[1].on_return = ReturnRule::trusted;
  Story story(setup, {{"a", 1}, {"b", 1}, {"c", 2}});
  std::vector<ChunkId> last;
  for (const std::size_t place : {0, 1, 2}) {
    story.world.attach(place);
    story.scrubs_of_taking(place, 1);
    REQUIRE(story.got.size() == 1);
    if (place == 1) CHECK(story.got == last);
    if (place == 2) CHECK(story.got != last);
    last = story.got;
    story.give_back(place);
    story.world.apply({Kind::detach, place});
  }
}

TEST_CASE("scrub: where every job says never, what the driver made is taken as it is") {
  CoreSetup setup = small_setup(2, {{"a", 1, 2}, {"b", 0, 2}});
  setup.jobs[0].scrub = setup.jobs[1].scrub = Scrub::never;
  Story story(setup, {{"a", 1}, {"b", 1}});
  story.world.attach(0);
  CHECK(story.scrubs_of_taking(0, 2) == 0);
}

TEST_CASE("F39: what a killed job left does not reach a job that says never") {
  CoreSetup setup = small_setup(1, {{"a", 1, 1}, {"b", 0, 1}});
  setup.jobs[1].scrub = Scrub::never;
  Story story(setup, {{"a", 1}, {"b", 1}});
  story.world.attach(0);
  CHECK(story.scrubs_of_taking(0, 1) == 1);
  story.world.apply({Kind::die, 0});
  story.world.work();
  story.world.apply({Kind::memory_back, 0});
  story.world.apply({Kind::read_device});
  story.world.work();  // it is remade
  story.world.attach(1);
  CHECK(story.scrubs_of_taking(1, 1) == 1);
}

TEST_CASE("scrub: always overwrites for the same owner too, never for nobody of its kind") {
  CoreSetup setup = small_setup(2, {{"a", 1, 2}, {"b", 0, 2}, {"c", 0, 2}});
  setup.jobs[0].scrub = Scrub::always;
  setup.jobs[1].scrub = Scrub::never;
  setup.jobs[2].scrub = Scrub::never;
  Story story(setup, {{"a", 1}, {"b", 1}, {"c", 1}});
  story.world.attach(1);
  CHECK(story.scrubs_of_taking(1, 2) == 2);  // as the driver made them: perhaps of what a's dead left
  story.give_back(1);
  story.world.apply({Kind::detach, 1});
  story.world.attach(2);
  CHECK(story.scrubs_of_taking(2, 2) == 0);
  story.give_back(2);
  story.world.apply({Kind::detach, 2});
  story.world.attach(0);
  CHECK(story.scrubs_of_taking(0, 2) == 2);
  story.give_back(0);
  CHECK(story.scrubs_of_taking(0, 2) == 2);
  story.give_back(0);
  story.world.apply({Kind::detach, 0});
  story.world.attach(1);
  CHECK(story.scrubs_of_taking(1, 2) == 2);  // what a had is not for those who do not care
}

TEST_CASE("scrub: a strict return is overwritten before it is loose, its job's own until then") {
  CoreSetup setup = three_chunks();
  setup.jobs[0].on_return = ReturnRule::strict;
  Story story(setup, {{"a", 1}, {"b", 1}});
  story.world.attach(0);
  story.scrubs_of_taking(0, 1);
  const ChunkId id = story.got[0];
  story.world.apply({Kind::release_all, 0});
  CHECK(story.world.core().book().find(id)->state == ChunkState::scrub);
  CHECK(story.world.used(0) == 32_MiB);
  CHECK(story.world.take_actions<actions::SendReleased>().empty());
  story.world.apply({Kind::helper_works});
  CHECK(story.world.core().book().find(id)->state == ChunkState::unmaking);
  story.world.work();
  CHECK(story.world.used(0) == 0_B);
  CHECK(story.world.take_actions<actions::SendReleased>().size() == 1);
}

TEST_CASE("scrub: an order that is given up leaves nothing charged, and its chunks clean for the next one") {
  for (const Kind end : {Kind::die, Kind::hang_up, Kind::detach}) {
    Story story(three_chunks(), {{"a", 1}, {"b", 2}});
    story.world.attach(0);
    story.world.apply({Kind::request, 0, 2, 2});
    story.world.apply({end, 0});
    CHECK(story.world.used(0) == 0_B);
    CHECK(story.world.core().pool().in_transit == 64_MiB);
    CHECK(story.world.core().pool().zombie == 0_B);  // it never had them
    story.world.work();
    CHECK(story.world.core().pool().free == 96_MiB);
    story.world.attach(1);
    CHECK(story.scrubs_of_taking(1, 2) == 0);
  }
}

TEST_CASE("F38: a scrub that fails is asked again, and never granted without") {
  Story story(three_chunks(), {{"a", 1}, {"b", 2}});
  story.world.attach(0);
  story.world.apply({Kind::request, 0, 2, 2});
  for (int i = 0; i < 2; ++i) {
    story.world.apply({Kind::helper_fails});
    CHECK(story.world.client(0).unacked.empty());
    CHECK(story.world.used(0) == 64_MiB);
    CHECK(story.world.core().wants_tick());
    story.world.apply({Kind::tick});
  }
  story.world.apply({Kind::helper_works});
  CHECK(story.world.client(0).unacked.size() == 1);
  CHECK(story.world.take_refusals().empty());
}

TEST_CASE("F38: after three failures the request is refused with the reason, and the book is as before") {
  Story story(three_chunks(), {{"a", 1}, {"b", 2}});
  story.world.attach(0);
  story.world.apply({Kind::request, 0, 2, 2});
  for (int i = 0; i < 3; ++i) {
    story.world.apply({Kind::helper_fails});
    story.world.apply({Kind::tick});
  }
  const std::vector<Refusal> refusals = story.world.take_refusals();
  REQUIRE(refusals.size() == 1);
  CHECK(refusals[0].rule == Refusal::Rule::scrub_failed);
  CHECK(refusals[0].reason.find("tried 3 times: the helper died") != std::string::npos);
  CHECK(story.world.used(0) == 0_B);
  CHECK(story.world.core().pool().free == 96_MiB);
  story.idle();
  CHECK_FALSE(story.world.core().wants_tick());  // no loop of tries without an end
  CHECK(story.scrubs_of_taking(0, 2) == 2);      // and the next request tries anew
  CHECK(story.got.size() == 2);
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
  for (int i = 0; i < 3; ++i) {
    story.world.apply({Kind::helper_fails});
    story.world.apply({Kind::tick});
  }
  REQUIRE(story.world.take_refusals().size() == 1);
  CHECK(story.world.core().pool().free == 64_MiB);
  CHECK(story.scrubs_of_taking(1, 2) == 4);
}

TEST_CASE("scrub ahead: a second after the last request, never before the first that needed it") {
  Story story(three_chunks(), {{"a", 1}, {"b", 2}});
  story.world.attach(0);
  story.idle();
  CHECK(story.world.take_actions<actions::ScrubChunks>().empty());
  CHECK_FALSE(story.world.core().wants_tick());
  story.scrubs_of_taking(0, 1);
  story.world.apply({Kind::tick});
  CHECK(story.world.take_actions<actions::ScrubChunks>().empty());
  story.world.apply({Kind::tick});
  const auto scrubs = story.world.take_actions<actions::ScrubChunks>();
  REQUIRE(scrubs.size() == 1);
  CHECK(scrubs[0].chunks.size() == 2);
  CHECK(story.world.core().pool().in_transit == 64_MiB);  // nobody's
  story.world.work();
  CHECK(story.world.core().pool().free == 64_MiB);
  CHECK_FALSE(story.world.core().wants_tick());
  CHECK(story.scrubs_of_taking(0, 2) == 0);
}

TEST_CASE("scrub ahead: a request that comes meanwhile is neither refused nor short, a burst neither") {
  Story story(small_setup(3, {{"a", 1, 3}}), {{"a", 1}});
  story.world.attach(0);
  story.scrubs_of_taking(0, 1);
  story.idle();
  REQUIRE(story.world.core().pool().in_transit == 64_MiB);
  story.world.apply({Kind::request, 0, 2, 2});
  CHECK(story.world.take_refusals().empty());
  CHECK(story.world.client(0).unacked.empty());
  story.world.work();
  CHECK(story.world.client(0).unacked.size() == 1);
}

TEST_CASE("scrub: of the free chunks its own, then clean ones, then those to overwrite, then loose bytes") {
  CoreSetup setup = small_setup(4, {{"a", 1, 4}, {"b", 1, 4}});
  Story story(setup, {{"a", 1}, {"b", 1}});
  story.world.attach(0);
  story.world.attach(1);
  story.scrubs_of_taking(0, 1);
  const ChunkId own = story.got[0];
  story.scrubs_of_taking(1, 1);
  const ChunkId others = story.got[0];
  story.idle();
  story.world.work();  // the two that nobody had are clean
  story.give_back(0);
  story.give_back(1);
  CHECK(story.scrubs_of_taking(0, 1) == 0);
  CHECK(story.got[0] == own);
  CHECK(story.scrubs_of_taking(0, 2) == 0);
  CHECK(story.world.core().book().find(others)->state == ChunkState::free);
  story.world.apply({Kind::detach, 1});
  CHECK(story.scrubs_of_taking(0, 1) == 1);
  CHECK(story.got[0] == others);
}

TEST_CASE("F01: memory of the dead is not overwritten: it is unmade, and what is made of it is") {
  Story story(small_setup(1, {{"a", 1, 1}}), {{"a", 1}});
  story.world.attach(0);
  story.scrubs_of_taking(0, 1);
  story.world.apply({Kind::die, 0});
  CHECK(story.world.take_actions<actions::ScrubChunks>().empty());
  story.world.apply({Kind::memory_back, 0});
  story.world.work();
  story.world.apply({Kind::read_device});
  story.world.work();
  story.world.attach(0);
  CHECK(story.scrubs_of_taking(0, 1) == 1);
}

TEST_CASE("F38: at every store of a scrub the journal calls nothing clean that is not") {
  // World checks that at each store; here the stores are known to be there.
  Story story(three_chunks(), {{"a", 1}, {"b", 1}});
  story.world.attach(0);
  story.scrubs_of_taking(0, 3);
  story.give_back(0);
  story.idle();
  const auto clean = [&] {
    std::size_t count = 0;
    const JournalImage image = *read_journal(story.world.journal().memory());
    for (const JournalImage::Lease& lease : image.chunks)
      count += lease.state == ChunkState::free && lease.marks.clean ? 1 : 0;
    return count;
  };
  CHECK(clean() == 0);
  story.world.apply({Kind::helper_fails});
  CHECK(clean() == 0);
  story.world.work();
  story.idle();
  story.world.work();
  CHECK(clean() == 3);
  const JournalImage image = *read_journal(story.world.journal().memory());
  CHECK(image.chunks[0].marks.bound);
  CHECK(image.chunks[0].last_owner->uid == 1);
}
