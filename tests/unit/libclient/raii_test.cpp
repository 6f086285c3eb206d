#include <apportion/apportion.hpp>

#include "tests/support/catch.hpp"
#include "tests/unit/libclient/fake_broker.hpp"

using namespace apportion::testing;

namespace {
apportion::Session attach(const FakeBroker& broker) {
  apportion::Session::Options options;
  options.job = "trainer";
  options.socket = broker.path();
  return apportion::Session(options);
}
}  // namespace

TEST_CASE("RAII: blocks free themselves, sessions detach themselves") {
  FakeBroker broker;
  {
    apportion::Session session = attach(broker);
    {
      const apportion::Block a = session.allocate(5 << 20);
      apportion::Block b = session.allocate(100);
      CHECK(a.data() != nullptr);
      CHECK(a.size() == 5 << 20);
      CHECK(session.stats().live_blocks == 2);
      apportion::Block c = std::move(b);
      CHECK(!b);  // NOLINT: a moved-from block is empty
      CHECK(session.stats().live_blocks == 2);
      c = session.allocate(200);
      CHECK(session.stats().live_blocks == 2);
    }
    CHECK(session.stats().live_blocks == 0);
    CHECK(session.trim_to(0) > 0);
    CHECK(session.info().free_bytes == session.info().total_bytes);
  }
  CHECK(broker.seen().detaches == 1);
}

TEST_CASE("RAII: reserve holds what it says, and what would not fit is refused at the start") {
  FakeBroker broker;
  apportion::Session session = attach(broker);
  session.reserve(20 << 20);
  CHECK(session.stats().bytes_reserved == 20 << 20);
  CHECK(broker.leased() == 10);
  const std::uint64_t growths = session.stats().growths;
  apportion::Block block = session.allocate(20 << 20);
  CHECK(session.stats().growths == growths);
  CHECK_THROWS_AS(session.reserve(512 << 20), apportion::Failure);
  CHECK(session.stats().bytes_reserved == 20 << 20);
}

TEST_CASE("RAII: a graph pool keeps what was freed under capture until it is released") {
  FakeBroker broker;
  apportion::Session session = attach(broker);
  const auto stream = reinterpret_cast<apportion_stream>(std::uintptr_t{0xa000});
  const apportion_graph_pool pool = session.graph_pool_begin(stream);
  session.allocate(4 << 20, stream).reset();
  session.graph_pool_end(stream);
  CHECK(session.stats().graph_pool_bytes == 4 << 20);
  CHECK_THROWS_AS(session.graph_pool_begin(nullptr), apportion::Failure);
  session.graph_pool_release(pool);
  CHECK(session.stats().graph_pool_bytes == 0);
  CHECK_THROWS_AS(session.graph_pool_release(pool), apportion::Failure);
}

TEST_CASE("RAII: an exact block that cannot be freed yet is kept, and freed later") {
  FakeBroker broker;
  apportion::Session session = attach(broker);
  const auto stream = reinterpret_cast<apportion_stream>(std::uintptr_t{0xa000});
  apportion::Block exact = session.allocate(2 << 20, nullptr, APPORTION_EXACT);
  apportion::Block other = session.allocate(2 << 20, nullptr, APPORTION_EXACT);
  void* const memory = exact.data();
  session.graph_pool_begin(stream);
  CHECK(exact.free() == APPORTION_BUSY);
  exact.reset();
  CHECK(exact.data() == memory);
  CHECK(exact.size() == 2 << 20);
  exact = std::move(other);  // NOLINT(bugprone-use-after-move): which says what it leaves behind
  CHECK(exact.data() != memory);
  CHECK(other.data() == memory);
  session.graph_pool_end(stream);
  CHECK(exact.free() == APPORTION_OK);
  CHECK(!exact);
  CHECK(other.free() == APPORTION_OK);
  CHECK(other.free() == APPORTION_OK);  // nothing to free
  CHECK(broker.leased() == 0);
  CHECK(session.stats().live_blocks == 0);
}

TEST_CASE("RAII: a refusal is thrown with its status and the library's line") {
  FakeBroker broker;
  apportion::Session session = attach(broker);
  try {
    (void)session.allocate(512 << 20);
    FAIL("nothing was thrown");
  } catch (const apportion::Failure& failure) {
    CHECK(failure.status() == APPORTION_QUOTA);
    CHECK(std::string(failure.what()) == "job trainer: asked for more than its limit");
  }
  session.detach();
  CHECK(broker.seen().detaches == 1);
}
