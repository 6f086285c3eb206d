// Field cases about quota: who gets how much, in whatever order they come.
#include "tests/support/catch.hpp"
#include "tests/support/test_client.hpp"

using namespace apportion;
using namespace apportion::testing;

TEST_CASE("R9: two processes of one job have one account") {
  BrokerOptions options;
  options.jobs = "[jobs.a]\nshare = \"0.5\"\n";
  TestBroker broker(options);
  TestClient first(broker);
  TestClient second(broker);
  first.attach("a");
  second.attach("a");
  const Bytes limit = first.info()["limit"];
  const Bytes part{limit.value / 10 * 6};
  first.alloc(part);
  const TestClient::Answer refused = second.ask("alloc " + std::to_string(part.value));
  CHECK(refused.code == "APPORTION_QUOTA");
  CHECK(refused.text.find("pid " + std::to_string(first.pid())) != std::string::npos);
  CHECK(broker.job("a").job.charged == round_up(part, broker.chunk()).value);
  // What is left of the one account is the second's.
  second.alloc(limit - round_up(part, broker.chunk()));
  CHECK(broker.job("a").job.charged == limit.value);
}
