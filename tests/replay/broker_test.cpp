// The replayers through libclient and a real broker: what a framework does when its job's quota, not the
// device, is what ends.
#include "tests/replay/worker.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/test_broker.hpp"

using namespace apportion;
using namespace apportion::testing;
using apportion::replay::Worker;
using nlohmann::json;

namespace {

// A worker of `job`, told its figures.
struct Program {
  Program(const TestBroker& broker, const std::string& framework, const std::string& job,
          std::vector<std::string> more = {})
      : worker(arguments(framework, job, std::move(more)),
               {{"APPORTION_SOCKET", broker.socket()}, {"CUDASIM_DIR", broker.device_folder()}}) {
    worker.expect("ready");
    worker.go();
    told = worker.expect("told");
  }
  json take() {
    worker.go();
    return worker.expect("result");
  }
  static std::vector<std::string> arguments(const std::string& framework, const std::string& job,
                                            std::vector<std::string> more) {
    more.insert(more.end(), {"--device", "sim:8GiB", "--framework", framework, "--job", job,
                             "--first-request", "1048576"});
    return more;
  }
  Worker worker;
  json told;
};

constexpr Bytes kGrowth = 10_GiB;  // more than there is

}  // namespace

TEST_CASE("PyTorch native through a broker gives its caches back at its job's quota, and then fits") {
  BrokerOptions options;
  options.jobs = "[jobs.a]\nshare = \"0.25\"\n[jobs.b]\nshare = \"0.25\"\n";
  TestBroker broker(options);
  Program a(broker, "pytorch", "a");
  Program b(broker, "pytorch", "b");
  const std::uint64_t limit = broker.job("a").job.limit;
  for (Program* program : {&a, &b}) {
    CHECK(program->told["told_bytes"] == limit);
    const json result = program->take();
    INFO(result.dump());
    CHECK(result["ok"] == true);
    CHECK(result["error"].is_null());
    // Five segments, the one that the quota refused, and the same again after the caches went.
    CHECK(result["tries"] == 7);
    CHECK(result["got_bytes"] > limit - (100_MiB).value);
  }
  // The device has room for both; each stays within its own.
  for (const char* job : {"a", "b"}) {
    CHECK(broker.job(job).job.charged <= limit);
    CHECK(broker.job(job).job.charged > limit - (100_MiB).value);
  }
  for (Program* program : {&a, &b})
    CHECK(program->worker.finish() == 0);
  broker.wait_idle();
}

TEST_CASE("PyTorch native beside JAX classic in one job is told out of memory, and goes on") {
  BrokerOptions options;
  options.jobs = "[jobs.a]\nshare = \"0.25\"\n";
  TestBroker broker(options);
  Program jax(broker, "jax", "a");
  Program torch(broker, "pytorch", "a");  // told all that is free, before JAX takes its pool
  CHECK(torch.told["free_bytes"] == jax.told["free_bytes"]);
  CHECK(jax.take()["ok"] == true);
  const json result = torch.take();
  INFO(result.dump());
  CHECK(result["ok"] == false);
  CHECK(result["error"].get<std::string>().find("whole: tried to allocate") == 0);
  CHECK(result["got_bytes"] > 0);
  const wire::JobRow row = broker.job("a");
  CHECK(row.job.charged <= row.job.limit);
  CHECK(torch.worker.finish() == 0);  // what it holds is intact at its end
  CHECK(jax.worker.finish() == 0);
  broker.wait_idle();
}

TEST_CASE("JAX 0.75+ through a broker: the prefix is its guarantee, growth is burst up to its limit") {
  BrokerOptions options;
  options.broker = "pool = \"6GiB\"\n";
  options.jobs =
      "[jobs.a]\nguarantee = \"2304MiB\"\nlimit = \"3GiB\"\nreport = \"limit\"\n"
      "[jobs.b]\nshare = \"0.5\"\n";
  TestBroker broker(options);
  Program a(broker, "jax-growing", "a", {"--growth", std::to_string(kGrowth.value)});
  CHECK(a.told["told_bytes"] == (3_GiB).value);
  const json grown = a.take();
  INFO(grown.dump());
  CHECK(grown["got_bytes"] == (3_GiB).value);  // 2304 MiB and twelve steps
  CHECK(grown["tries"] == 13);
  CHECK(grown["error"] == "the pool cannot grow by 64 MiB: 0 B are free");
  // The neighbour's guarantee is whole all the same.
  Program b(broker, "jax-growing", "b", {"--growth", std::to_string((768_MiB).value)});
  const json whole = b.take();
  INFO(whole.dump());
  CHECK(whole["ok"] == true);
  CHECK(whole["got_bytes"] == (3_GiB).value);
  CHECK(a.worker.finish() == 0);
  CHECK(b.worker.finish() == 0);
  broker.wait_idle();
}

TEST_CASE("TensorFlow through a broker: each takes all that its job is told, whoever starts first") {
  BrokerOptions options;
  options.jobs = "[jobs.a]\nshare = \"0.5\"\n[jobs.b]\nshare = \"0.5\"\n";
  for (const bool a_first : {true, false}) {
    TestBroker broker(options);
    Program first(broker, "tensorflow", a_first ? "a" : "b");
    Program second(broker, "tensorflow", a_first ? "b" : "a");
    const std::uint64_t told = broker.job("a").job.guarantee;
    for (Program* program : {&first, &second}) {
      CHECK(program->told["free_bytes"] == told);
      const json result = program->take();
      INFO(result.dump());
      CHECK(result["ok"] == true);
      CHECK(result["got_bytes"] == told - (1536_MiB).value);
    }
    CHECK(first.worker.finish() == 0);
    CHECK(second.worker.finish() == 0);
  }
}

TEST_CASE("PyTorch expandable through a broker: the arena's blocks in the segments' place") {
  BrokerOptions options;
  options.jobs = "[jobs.a]\nshare = \"0.5\"\n";
  TestBroker broker(options);
  Program torch(broker, "pytorch-expandable", "a");
  const json result = torch.take();
  INFO(result.dump());
  CHECK(result["ok"] == true);
  const wire::JobRow row = broker.job("a");
  CHECK(row.job.charged <= row.job.limit);
  CHECK(row.job.charged > row.job.limit - (100_MiB).value);
  CHECK(torch.worker.finish() == 0);
  broker.wait_idle();
}
