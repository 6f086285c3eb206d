// Rule 1: a request above its job's limit waits for what the job's own sessions hold unused, or have on its
// way back.
#include "tests/support/catch.hpp"
#include "tests/unit/broker/world.hpp"

using namespace apportion;
using namespace apportion::testing;
using Kind = Step::Kind;

namespace {

// One job of four chunks, three processes; one job beside it.
CoreSetup shared_job() {
  return small_setup(6, {{"a", 4, 4}, {"b", 0, 6}});
}
std::vector<Place> four_places() {
  return {{"a"}, {"a"}, {"a"}, {"b", 2000}};
}

struct SharedJob : World {
  explicit SharedJob(const CoreSetup& setup = shared_job()) : World(setup, four_places()) {
    start();
    for (std::size_t place = 0; place < 3; ++place)
      attach(place);
    static_cast<void>(take_actions<actions::SendReclaim>());
  }
  void ask(std::size_t place, std::uint64_t chunks) {
    apply({Kind::request, place, chunks, chunks});
    work();
  }
  [[nodiscard]] bool waits(std::size_t place) const { return client(place).request_pending(); }
  [[nodiscard]] std::size_t granted(std::size_t place) const {
    return client(place).unacked.empty() ? 0 : client(place).unacked.back().ids.size();
  }
};

}  // namespace

TEST_CASE("waiting F56: chunks that lie idle in one session are brought back for another of its job") {
  SharedJob world;
  REQUIRE(world.take(0, 4).size() == 4);
  world.ask(1, 2);
  CHECK(world.waits(1));
  CHECK(world.take_refusals().empty());
  const auto asked = world.take_actions<actions::SendReclaim>();
  REQUIRE(asked.size() == 1);
  CHECK(asked[0].session == world.client(0).session);
  CHECK(asked[0].bytes == 64_MiB);
  CHECK(asked[0].deadline_ms == 2000);
  CHECK(world.core().job_page(world.job_of(0)).reclaim_target == (64_MiB).value);
  world.apply({Kind::give_back, 0});
  world.work();
  CHECK(world.granted(1) == 2);
  CHECK(world.used(0) == 128_MiB);
  CHECK(world.core().job_page(world.job_of(0)).reclaim_target == 0);
}

TEST_CASE("waiting: refused once who was asked has no more, and the refusal says so") {
  SharedJob world;
  REQUIRE(world.take(0, 4).size() == 4);
  world.ask(1, 2);
  world.apply({Kind::give_back_none, 0});
  CHECK_FALSE(world.waits(1));
  const std::vector<Refusal> refusals = world.take_refusals();
  REQUIRE(refusals.size() == 1);
  CHECK(refusals[0].rule == Refusal::Rule::limit);
  CHECK(refusals[0].reason.find("asked back 64 MiB of pid " + std::to_string(world.client(0).pid) +
                                ", it had no more") != std::string::npos);
}

TEST_CASE("waiting: who holds most is asked first, and the next at once where that cannot be enough") {
  SharedJob world;
  REQUIRE(world.take(0, 1).size() == 1);
  REQUIRE(world.take(1, 3).size() == 3);
  world.ask(2, 1);
  auto asked = world.take_actions<actions::SendReclaim>();
  REQUIRE(asked.size() == 1);
  CHECK(asked[0].session == world.client(1).session);
  world.apply({Kind::give_back_none, 1});
  asked = world.take_actions<actions::SendReclaim>();
  REQUIRE(asked.size() == 1);
  CHECK(asked[0].session == world.client(0).session);
  world.apply({Kind::give_back, 0});
  world.work();
  CHECK(world.granted(2) == 1);

  world.apply({Kind::ack, 2});
  world.ask(0, 4);
  asked = world.take_actions<actions::SendReclaim>();
  REQUIRE(asked.size() == 2);
  CHECK(asked[0].bytes == 96_MiB);
  CHECK(asked[1].bytes == 32_MiB);
}

TEST_CASE("waiting: a session that is silent past its deadline is not asked again until it is heard of") {
  SharedJob world;
  REQUIRE(world.take(0, 4).size() == 4);
  world.ask(1, 1);
  const RequestId first = world.client(0).reclaim_id;
  world.apply({Kind::tick});
  CHECK(world.waits(1));
  world.apply({Kind::tick});
  CHECK_FALSE(world.waits(1));
  CHECK(world.take_refusals().at(0).reason.find("no answer in time") != std::string::npos);
  static_cast<void>(world.take_actions<actions::SendReclaim>());

  world.ask(1, 1);  // at once
  CHECK_FALSE(world.waits(1));
  CHECK(world.take_actions<actions::SendReclaim>().empty());

  world.feed(events::Reclaimed{world.client(0).session, first});
  world.ask(1, 1);
  CHECK(world.waits(1));
  CHECK(world.take_actions<actions::SendReclaim>().size() == 1);
}

TEST_CASE("waiting: a late answer to an earlier RECLAIM is not taken for one to the later") {
  SharedJob world;
  REQUIRE(world.take(0, 4).size() == 4);
  world.ask(1, 1);
  const RequestId first = world.client(0).reclaim_id;
  world.apply({Kind::tick});
  world.apply({Kind::tick});
  world.apply({Kind::release_one, 0});  // heard of
  REQUIRE(world.take(1, 1).size() == 1);
  world.ask(1, 1);
  REQUIRE(world.waits(1));
  world.feed(events::Reclaimed{world.client(0).session, first});
  CHECK(world.waits(1));
}

TEST_CASE("waiting F01: a job that was full when its holder died waits for the device, then gets it") {
  SharedJob world;
  REQUIRE(world.take(0, 4).size() == 4);
  world.apply({Kind::die, 0});
  world.ask(1, 4);
  CHECK(world.waits(1));
  CHECK(world.take_actions<actions::SendReclaim>().empty());
  world.apply({Kind::memory_back, 0});
  world.apply({Kind::read_device});
  world.work();
  CHECK(world.granted(1) == 4);
}

TEST_CASE("waiting: a holder that dies over RECLAIM leaves the request waiting for the device") {
  SharedJob world;
  REQUIRE(world.take(0, 4).size() == 4);
  world.ask(1, 4);
  world.apply({Kind::die, 0});
  world.work();
  CHECK(world.waits(1));
  world.apply({Kind::memory_back, 0});
  world.apply({Kind::read_device});
  world.work();
  CHECK(world.granted(1) == 4);
}

TEST_CASE(
    "waiting F01: a hang-up, which comes before the death, does not end the wait for what the holder had") {
  SharedJob world;
  REQUIRE(world.take(0, 4).size() == 4);
  world.ask(1, 4);
  world.apply({Kind::hang_up, 0});
  CHECK(world.waits(1));
  world.apply({Kind::die, 0});
  world.work();
  CHECK(world.waits(1));
  world.apply({Kind::memory_back, 0});
  world.apply({Kind::read_device});
  world.work();
  CHECK(world.granted(1) == 4);
}

TEST_CASE(
    "waiting: of two that would wait for each other the later is refused at once, and answers the earlier") {
  SharedJob world;
  REQUIRE(world.take(0, 2).size() == 2);
  REQUIRE(world.take(1, 2).size() == 2);
  world.ask(0, 1);
  REQUIRE(world.waits(0));
  world.ask(1, 1);
  CHECK_FALSE(world.waits(1));
  CHECK(world.take_refusals().size() == 1);
  world.apply({Kind::give_back, 1});
  world.work();
  CHECK(world.granted(0) == 1);
}

TEST_CASE("waiting: a request that fits but for an earlier one waits for the end of that") {
  SharedJob world(small_setup(10, {{"a", 10, 10}, {"b", 0, 6}}));
  REQUIRE(world.take(0, 3).size() == 3);
  REQUIRE(world.take(1, 3).size() == 3);
  world.ask(0, 7);
  REQUIRE(world.waits(0));
  world.ask(2, 1);
  CHECK(world.waits(2));
  world.apply({Kind::give_back_none, 1});  // the first is refused
  world.work();
  CHECK_FALSE(world.waits(0));
  CHECK(world.granted(2) == 1);
}

TEST_CASE("waiting: a session waits for one request at a time") {
  SharedJob world;
  REQUIRE(world.take(0, 4).size() == 4);
  world.ask(1, 1);
  const RequestId first = world.client(1).pending;
  world.ask(1, 1);
  CHECK(world.take_refusals().size() == 1);
  world.apply({Kind::give_back, 0});
  world.work();
  REQUIRE(world.granted(1) == 1);
  CHECK(world.client(1).unacked.back().request == first);
}

TEST_CASE("waiting: what comes back is waited for until it can be granted, unmade and made anew on the way") {
  CoreSetup setup = small_setup(4, {{"a", 0, 4}});
  setup.jobs[0].on_return = ReturnRule::strict;
  World world(setup, {{"a"}, {"a"}});
  world.start();
  world.attach(0);
  world.attach(1);
  REQUIRE(world.take(0, 4).size() == 4);
  world.apply({Kind::request, 1, 2, 2});
  world.apply({Kind::give_back, 0});
  world.work();
  CHECK(world.take_refusals().empty());
  REQUIRE(world.client(1).unacked.size() == 1);
  CHECK(world.client(1).unacked.back().ids.size() == 2);
}

TEST_CASE("waiting F01: what a killed job had, being made anew and nobody's, is waited for by a burst too") {
  World world(small_setup(4, {{"a", 1, 4}, {"b", 0, 4}}), {{"a"}, {"b", 2}});
  world.start();
  world.attach(0);
  REQUIRE(world.take(0, 4).size() == 4);
  world.apply({Kind::die, 0});
  world.work();
  world.apply({Kind::memory_back, 0});
  world.apply({Kind::read_device});  // loose, and now being made
  world.attach(1);
  world.apply({Kind::request, 1, 3, 3});
  CHECK(world.take_refusals().empty());
  world.work();
  REQUIRE(world.client(1).unacked.size() == 1);
}

TEST_CASE("waiting: what all of the job could give is too little: refused at once, and nobody is asked") {
  SharedJob world;
  REQUIRE(world.take(0, 1).size() == 1);
  REQUIRE(world.take(1, 3).size() == 3);
  world.ask(0, 4);  // its own chunk is not asked back
  CHECK_FALSE(world.waits(0));
  CHECK(world.take_refusals().size() == 1);
  CHECK(world.take_actions<actions::SendReclaim>().empty());
}

TEST_CASE("waiting: not longer than the job's wait, and not at all where that is nothing") {
  CoreSetup setup = shared_job();
  setup.jobs[0].wait_ns = 0;
  SharedJob at_once(setup);
  REQUIRE(at_once.take(0, 4).size() == 4);
  at_once.ask(1, 1);
  CHECK_FALSE(at_once.waits(1));
  CHECK(at_once.take_actions<actions::SendReclaim>().empty());

  SharedJob world;
  REQUIRE(world.take(0, 4).size() == 4);
  world.apply({Kind::die, 0});  // and the device never lets go
  world.ask(1, 1);
  world.apply({Kind::tick});
  CHECK(world.waits(1));
  world.apply({Kind::tick});  // ten seconds later
  CHECK_FALSE(world.waits(1));
  CHECK(world.take_refusals().at(0).reason.find("its wait is over") != std::string::npos);
}

TEST_CASE("waiting: what a waiter will take is not lent to the burst of another job meanwhile") {
  // The waiter is above its guarantee, so that nothing but its waiting protects what comes back.
  SharedJob world(small_setup(6, {{"a", 1, 4}, {"b", 0, 6}}));
  world.attach(3);
  REQUIRE(world.take(0, 4).size() == 4);
  world.ask(1, 2);
  REQUIRE(world.waits(1));
  CHECK(world.take(3, 2).size() == 2);  // what is free now, beside what it waits for
  world.apply({Kind::release_one, 0});  // one of the two comes back
  world.work();
  REQUIRE(world.waits(1));
  CHECK(world.take(3, 1).empty());
  world.apply({Kind::give_back, 0});
  world.work();
  CHECK(world.granted(1) == 2);
}

TEST_CASE("waiting: requests of one job are served in the order they came") {
  SharedJob world;
  REQUIRE(world.take(0, 4).size() == 4);
  world.ask(1, 3);
  world.ask(2, 1);
  REQUIRE(world.waits(1));
  REQUIRE(world.waits(2));
  world.apply({Kind::release_one, 0});  // enough for the second alone
  world.work();
  CHECK(world.waits(1));
  CHECK(world.waits(2));
  world.apply({Kind::release_all, 0});
  world.work();
  CHECK(world.granted(1) == 3);
  CHECK(world.granted(2) == 1);
}

TEST_CASE("waiting: who hangs up or leaves waits no more") {
  SharedJob world;
  REQUIRE(world.take(0, 4).size() == 4);
  world.ask(1, 2);
  world.ask(2, 1);
  world.apply({Kind::hang_up, 1});
  world.apply({Kind::detach, 2});
  world.apply({Kind::give_back, 0});
  world.work();
  CHECK(world.core().pool().charged == 64_MiB);
  CHECK(world.core().pool().free == 128_MiB);
}
