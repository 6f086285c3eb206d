// Slabs with real processes: a broker, its helper, and a holder that opens what the job page names.
#include <signal.h>

#include "shm/job_page.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/raw_client.hpp"
#include "tests/support/run_program.hpp"
#include "tests/support/test_client.hpp"

using namespace apportion;
using namespace apportion::testing;

namespace {

constexpr uid_t kStranger = 4244;

BrokerOptions slab_pool(const std::string& job = "") {
  BrokerOptions options;
  options.device = 4_GiB;
  options.dirty = true;
  options.broker = "pool = \"128MiB\"\n";
  options.jobs = "[jobs.slabs]\ntransport = \"ipc\"\n" + job + "[jobs.chunks]\n";
  return options;
}

// A session of job "slabs": its words are this test's, its openings are done by programs beside it, as the
// driver needs a process that can die.
struct Holder {
  explicit Holder(const TestBroker& of) : broker(of), client(of.socket()) {
    const wire::Welcome welcome = client.hello("slabs");
    CHECK((welcome.flags & wire::Welcome::kSlabs) != 0);
    auto opened = JobPageReader::open(client.pages()[1].get());
    REQUIRE(opened.ok());
    page.emplace(*std::move(opened));
  }
  // One grant, acknowledged.
  wire::SlabGrant take(Bytes bytes) {
    const RawClient::Received answer = client.request(bytes);
    const auto* grant = std::get_if<wire::SlabGrant>(&answer.message);
    REQUIRE(grant != nullptr);
    CHECK(answer.fds.empty());
    auto ack = wire::make<wire::GrantAck>(grant->header.request_id, grant->header.epoch);
    ack.part.count = grant->part.count;
    for (std::size_t i = 0; i < grant->part.count; ++i)
      ack.ids[i] = grant->entries[i].lease_id;
    REQUIRE(client.send(ack));
    return *grant;
  }
  [[nodiscard]] Launch opening(const wire::SlabPlace& slab, const std::string& how) const {
    const auto found = page->slab(slab.place, slab.lease_id);
    REQUIRE(found.ok());
    CHECK(found->bytes == Bytes{slab.bytes});
    std::string hex;
    for (const std::uint8_t byte : found->handle) {
      char two[3];
      std::snprintf(two, sizeof two, "%02x", byte);
      hex += two;
    }
    Launch launch = broker.launch("", "");
    launch.command = {built("tests/support/open_slab"), "sim:4GiB", hex, std::to_string(slab.bytes)};
    if (!how.empty()) launch.command.push_back(how);
    launch.variables["APPORTION_SOCKET"] = "";
    return launch;
  }
  void release(const std::vector<std::uint64_t>& ids) {
    auto release = wire::make<wire::Release>(client.next_request(), 1);
    release.part.count = static_cast<std::uint32_t>(ids.size());
    std::copy(ids.begin(), ids.end(), release.ids.begin());
    REQUIRE(client.send(release));
    const auto answer = client.receive();
    REQUIRE(answer);
    CHECK(std::holds_alternative<wire::Released>(answer->message));
  }
  const TestBroker& broker;
  RawClient client;
  std::optional<JobPageReader> page;
};

}  // namespace

TEST_CASE(
    "F39: a slab is zeros to who opens it, every byte of it is another job's before, and it goes back") {
  TestBroker broker(slab_pool());
  {
    TestClient other(broker);
    other.attach("chunks");
    const std::uint64_t block = other.alloc(128_MiB);
    other.must("stamp " + std::to_string(block) + " " + std::to_string((128_MiB).value) + " 9");
    other.free(block);
    other.detach();
  }
  Holder holder(broker);
  const wire::SlabGrant grant = holder.take(64_MiB);
  REQUIRE(grant.part.count == 2);  // one slab per chunk
  Process first(holder.opening(grant.entries[0], ""));
  CHECK(first.line() == "00");
  CHECK(first.wait() == 0);
  Process again(holder.opening(grant.entries[0], ""));
  CHECK(again.line() == "77");  // one memory
  CHECK(again.wait() == 0);
  CHECK(broker.job("slabs").job.charged == (64_MiB).value);
  CHECK(broker.status().broker.totals.foreign == 0);  // the helper's memory is the pool's
  holder.release({grant.entries[0].lease_id, grant.entries[1].lease_id});
  CHECK(holder.page->slab(grant.entries[0].place, grant.entries[0].lease_id).error().code == Errc::not_found);
  TestBroker::check_sums(broker.status());
  const wire::SlabGrant next = holder.take(32_MiB);
  Process third(holder.opening(next.entries[0], ""));
  CHECK(third.line() == "00");
  CHECK(third.wait() == 0);
  CHECK(broker.device().violations() == 0);
}

TEST_CASE("slabs: the helper stays as long as one is out, and ends when there was nothing for a while") {
  TestBroker broker(slab_pool());
  Holder holder(broker);
  const wire::SlabGrant grant = holder.take(32_MiB);
  const std::optional<pid_t> helper = broker.helper_pid();
  REQUIRE(helper.has_value());
  // Well past its idle time, counted by the broker's own clock.
  const std::uint64_t before = broker.status().broker.uptime_ms;
  REQUIRE(eventually([&] { return broker.status().broker.uptime_ms > before + 8000; }));
  CHECK(exists(*helper));
  holder.release({grant.entries[0].lease_id});
  CHECK(eventually([&] { return !exists(*helper); }));
  CHECK(broker.status().broker.totals.free == (128_MiB).value);
}

TEST_CASE(
    "F52: the helper dies while slabs are out: the holder hears, others go on, and the pool is whole at the "
    "end") {
  TestBroker broker(slab_pool());
  const std::uint64_t at_rest = broker.status().broker.totals.free;
  Holder holder(broker);
  const wire::SlabGrant grant = holder.take(32_MiB);
  const wire::SlabPlace slab = grant.entries[0];
  TestClient other(broker);
  other.attach("chunks");
  const std::uint64_t block = other.alloc(32_MiB);
  other.write(block, 32_MiB, 5);
  Process opened(holder.opening(slab, "hold"));
  CHECK(opened.line() == "00");
  const std::optional<pid_t> helper = broker.helper_pid();
  REQUIRE(helper.has_value());
  ::kill(*helper, SIGKILL);
  const auto told = holder.client.receive();
  REQUIRE(told);
  const auto* lost = std::get_if<wire::SlabsLost>(&told->message);
  REQUIRE(lost != nullptr);
  CHECK(lost->part.count == 1);
  CHECK(lost->ids[0] == slab.lease_id);
  CHECK(lost->text.view().find("1 slab of job \"slabs\" lost with all contents: the broker's helper died "
                               "(signal 9)") == 0);
  CHECK(holder.page->slab(slab.place, slab.lease_id).error().code == Errc::not_found);
  CHECK(broker.logged("event=lost what=slabs slabs=1 bytes=33554432 sessions=1"));
  // As long as it is open somewhere it counts.
  CHECK(broker.job("slabs").job.charged == (32_MiB).value);
  TestBroker::check_sums(broker.status());
  // The session goes on, with a new helper.
  const wire::SlabGrant next = holder.take(32_MiB);
  CHECK(broker.helper_pid() != helper);
  Process works(holder.opening(next.entries[0], ""));
  CHECK(works.line() == "00");
  CHECK(works.wait() == 0);
  CHECK(broker.job("slabs").job.charged == (64_MiB).value);
  opened.close_input();
  CHECK(opened.wait() == 0);
  CHECK(eventually([&] { return broker.job("slabs").job.charged == (32_MiB).value; }));
  holder.release({next.entries[0].lease_id});
  CHECK(eventually([&] { return broker.job("slabs").job.charged == 0; }));
  CHECK(other.check(block, 32_MiB, 5) == 32_MiB);
  other.free(block);
  other.detach();
  CHECK(eventually([&] { return broker.status().broker.totals.free == at_rest; }));
  CHECK(broker.device().violations() == 0);
}

TEST_CASE(
    "F52: a helper that dies while it makes a slab: the request is refused and says so, and the next is "
    "served") {
  for (const char* call : {"cuMemAlloc", "cuIpcGetMemHandle"}) {
    INFO(call);
    TestBroker broker(slab_pool());
    Holder holder(broker);
    cudasim::Fault fault;
    fault.signal_after = SIGKILL;
    broker.device().set_fault(call, fault);
    const RawClient::Received answer = holder.client.request(64_MiB);  // two slabs: it dies over the first
    const auto* refusal = std::get_if<wire::Refusal>(&answer.message);
    REQUIRE(refusal != nullptr);
    CHECK(refusal->text.view().find(
              "the broker's helper could not make a slab (the helper that makes slabs died "
              "(signal 9))") != std::string_view::npos);
    // What it may have made counts until the device shows that it is gone.
    CHECK(eventually([&] { return broker.status().broker.totals.in_transit == 0; }));
    const wire::SlabGrant grant = holder.take(32_MiB);
    holder.release({grant.entries[0].lease_id});
    CHECK(eventually([&] { return broker.job("slabs").job.charged == 0; }));
    TestBroker::check_sums(broker.status());
    // The next one was not taken for the dead.
    const std::string log = broker.log();
    const std::string dead = "event=lost what=helper";
    CHECK(log.find(dead) != std::string::npos);
    CHECK(log.find(dead, log.find(dead) + 1) == std::string::npos);
  }
}

TEST_CASE("rule 35: a broker that is stopped, or killed, frees no slab under its holder") {
  for (const int end : {SIGTERM, SIGKILL}) {
    TestBroker broker(slab_pool());
    Holder holder(broker);
    const wire::SlabGrant grant = holder.take(32_MiB);
    Process opened(holder.opening(grant.entries[0], "hold"));
    CHECK(opened.line() == "00");
    const std::optional<pid_t> helper = broker.helper_pid();
    REQUIRE(helper.has_value());
    ::kill(broker.broker_pid(), end);
    CHECK(eventually([&] { return !exists(*helper); }));
    CHECK(broker.device().violations() == 0);
  }
}

TEST_CASE(
    "rule 33, F57: a program of another uid is refused a job of slabs, with both uids and the way out") {
  if (!can_change_uid()) APPORTION_SKIP("without root no process of another uid can be started");
  TestBroker broker(slab_pool());
  TestClient stranger(broker, {.uid = kStranger});
  const TestClient::Answer answer = stranger.ask("attach slabs");
  CHECK_FALSE(answer.ok);
  CHECK(answer.text.find(
            "job \"slabs\" has transport = \"ipc\", which works within one user only: this program "
            "runs as uid 4244, the broker as uid 0; set transport = \"vmm\" for this job, or run both "
            "as one user") != std::string::npos);
  stranger.attach("chunks");
  CHECK(broker.logged("event=refused what=HELLO"));
}
