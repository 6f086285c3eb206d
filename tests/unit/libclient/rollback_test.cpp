// The client when something fails half-way: nothing is left, nothing leaks, and the leases go back.
#include <sys/resource.h>

#include "tests/unit/libclient/client_support.hpp"

using namespace apportion;
using namespace apportion::testing;

TEST_CASE("F33: whichever driver call of a growth fails, nothing is left and the leases go back") {
  FakeBroker broker;
  auto client = attach(broker);
  must_allocate(*client, 1_KiB);  // so that a context is there
  const std::uint64_t before = referenced();
  for (const char* function : {"cuMemImportFromShareableHandle", "cuMemGetAllocationPropertiesFromHandle",
                               "cuMemMap", "cuMemSetAccess"}) {
    const int chunks = std::string(function) == "cuMemSetAccess" ? 1 : 3;
    for (int nth = 1; nth <= chunks; ++nth) {
      INFO(function << " " << nth);
      const FakeBroker::Seen seen = broker.seen();
      {
        const Failing failing(function, 999, static_cast<std::uint64_t>(nth));
        const Result<Address> failed = client->allocate(6_MiB, 0, false);
        REQUIRE(!failed);
        CHECK(failed.error().code == Errc::driver);
        CHECK(failed.error().message.find(function) != std::string::npos);
      }
      CHECK(broker.wait([&](const auto& now) { return now.nacked == seen.nacked + 3; }));
      CHECK(broker.seen().nack_reason == Errc::driver);
      CHECK(broker.leased() == 1);
      CHECK(referenced() == before);
      CHECK(client->check().ok());
    }
  }
  CHECK(usable(must_allocate(*client, 6_MiB), 6_MiB));
}

TEST_CASE("F33: when a later part of a grant fails, the earlier ones are given back too") {
  FakeBroker broker;
  broker.part_chunks = 2;
  auto client = attach(broker);
  must_allocate(*client, 1_KiB);
  const std::uint64_t before = referenced();
  {
    const Failing failing("cuMemMap", 999, 4);  // in the second of three parts
    CHECK(!client->allocate(12_MiB, 0, false));
  }
  CHECK(broker.wait([](const auto& seen) { return seen.nacked == 4 && seen.released == 2; }));
  CHECK(broker.leased() == 1);
  CHECK(referenced() == before);
  CHECK(usable(must_allocate(*client, 12_MiB), 12_MiB));
}

TEST_CASE("F33: addresses whose roll-back worked are used again; where it failed, never") {
  FakeBroker broker;
  auto client = attach(broker);
  const Address first = must_allocate(*client, 2_MiB);
  {
    const Failing failing("cuMemMap", 2, 2);
    CHECK(client->allocate(6_MiB, 0, false).error().code == Errc::out_of_memory);
  }
  const Address next = must_allocate(*client, 6_MiB);
  CHECK(next == first + (2_MiB).value);
  {
    const Failing map("cuMemMap", 2, 2);
    const Failing unmap("cuMemUnmap", 999);
    const Result<Address> failed = client->allocate(4_MiB, 0, false);
    REQUIRE(!failed);
    CHECK(failed.error().message.find("stay mapped") != std::string::npos);
  }
  const Address after = must_allocate(*client, 4_MiB);
  CHECK(after >= next + (10_MiB).value);
  CHECK(usable(after, 4_MiB));
  CHECK(client->check().ok());
}

TEST_CASE("F34: a run whose unmap fails is tried one by one, and what fails again stays leased") {
  FakeBroker broker;
  auto client = attach(broker);
  const Address run = must_allocate(*client, 6_MiB);
  REQUIRE(client->deallocate(run, 0).ok());
  {
    const Failing failing("cuMemUnmap", 999);
    CHECK(*client->trim_to(0_B) == 6_MiB);
  }
  CHECK(broker.leased() == 0);
  const Address again = must_allocate(*client, 6_MiB);
  REQUIRE(client->deallocate(again, 0).ok());
  {
    const Failing failing("cuMemUnmap", 999, 1, cudasim::Fault::kForEver);
    CHECK(client->trim_to(0_B).error().code == Errc::driver);
  }
  CHECK(broker.leased() == 3);
  CHECK(client->stats()->cached_bytes == 0);
  CHECK(client->check().ok());
}

TEST_CASE("F35: in a broken context detach ends the session and leaves its memory charged") {
  FakeBroker broker;
  auto client = attach(broker);
  must_allocate(*client, 2_MiB);
  {
    const Failing failing("cuCtxSynchronize", 700, 1, cudasim::Fault::kForEver);
    CHECK(client->detach().error().code == Errc::driver);
  }
  CHECK(client->detached());
  CHECK(broker.wait([](const auto& seen) { return seen.hang_ups == 1; }));
  CHECK(broker.seen().detaches == 0);
}

TEST_CASE("F34: a chunk whose unmap fails stays leased, is never used again, and detach keeps it charged") {
  FakeBroker broker;
  auto client = attach(broker);
  const Address block = must_allocate(*client, 2_MiB);
  must_allocate(*client, 2_MiB);
  REQUIRE(client->deallocate(block, 0).ok());
  {
    const Failing failing("cuMemUnmap", 999);
    CHECK(client->trim_to(0_B).error().code == Errc::driver);
  }
  CHECK(broker.leased() == 2);
  CHECK(client->check().ok());
  CHECK(client->detach().ok());  // this time it works
  CHECK(broker.seen().detaches == 1);
}

TEST_CASE("a session whose memory cannot be unmapped is left without a DETACH, so that it stays charged") {
  FakeBroker broker;
  auto client = attach(broker);
  must_allocate(*client, 2_MiB);
  {
    const Failing failing("cuMemUnmap", 999, 1, cudasim::Fault::kForEver);
    CHECK(client->detach().error().code == Errc::driver);
  }
  CHECK(broker.wait([](const auto& seen) { return seen.hang_ups == 1; }));
  CHECK(broker.seen().detaches == 0);
}

TEST_CASE("F26, K5: too few descriptors are reported as such, and the leases go back") {
  FakeBroker broker;
  auto client = attach(broker);
  must_allocate(*client, 1_KiB);
  const std::size_t fds = quiet_fds(broker);
  broker.keep_fds = true;  // it is in this process: what it has sent counts here too
  rlimit old{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &old) == 0);
  rlimit low = old;
  low.rlim_cur = fds + 11;  // eight for the broker, three for the client
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &low) == 0);
  const Result<Address> failed = client->allocate(16_MiB, 0, false);
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &old) == 0);
  REQUIRE(!failed);
  CHECK(failed.error().code == Errc::system);
  CHECK(failed.error().message.find("RLIMIT_NOFILE") != std::string::npos);
  CHECK(broker.wait([](const auto& seen) { return seen.nacked == 8; }));
  CHECK(broker.leased() == 1);
  CHECK(quiet_fds(broker) == fds);
  CHECK(usable(must_allocate(*client, 16_MiB), 16_MiB));
}

TEST_CASE("K5: hundreds of chunks fit under a limit of a few dozen descriptors") {
  FakeBroker broker(400);
  auto client = attach(broker);
  must_allocate(*client, 1_KiB);
  const std::size_t fds = quiet_fds(broker);
  rlimit old{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &old) == 0);
  rlimit low = old;
  low.rlim_cur = fds + 24;  // eight of a grant at both ends, and a few that the simulator opens for a moment
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &low) == 0);
  std::string failed;
  for (int block = 0; block < 40 && failed.empty(); ++block) {
    const Result<Address> made = client->allocate(16_MiB, 0, false);
    if (!made) failed = made.error().message;
  }
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &old) == 0);
  CHECK(failed == "");
  CHECK(broker.leased() == 321);
  CHECK(quiet_fds(broker) == fds);
}

TEST_CASE("a grant without its descriptors, or with something else's, is given back") {
  FakeBroker broker;
  auto client = attach(broker);
  const std::size_t fds = quiet_fds(broker);
  broker.forget_fds = true;
  CHECK(client->allocate(4_MiB, 0, false).error().code == Errc::protocol);
  CHECK(broker.wait([](const auto& seen) { return seen.nacked == 2; }));
  broker.forget_fds = false;
  broker.strange_fds = true;
  CHECK(!client->allocate(4_MiB, 0, false));
  CHECK(broker.wait([](const auto& seen) { return seen.nacked == 4; }));
  broker.strange_fds = false;
  CHECK(quiet_fds(broker) == fds);
  CHECK(broker.leased() == 0);
  CHECK(usable(must_allocate(*client, 4_MiB), 4_MiB));
}

TEST_CASE("K3: a descriptor is closed as soon as its chunk is mapped") {
  FakeBroker broker(100);
  auto client = attach(broker);
  must_allocate(*client, 1_KiB);
  const std::size_t fds = quiet_fds(broker);
  must_allocate(*client, 120_MiB);
  CHECK(quiet_fds(broker) == fds);
}

TEST_CASE("F54: a grant of an older epoch is closed and dropped") {
  FakeBroker broker;
  broker.old_grant_first = true;
  auto client = attach(broker);
  const std::size_t fds = quiet_fds(broker);
  CHECK(usable(must_allocate(*client, 4_MiB), 4_MiB));
  CHECK(broker.wait([](const auto& seen) { return seen.acked == 2; }));
  CHECK(broker.seen().nacked == 0);
  CHECK(quiet_fds(broker) == fds);
}
