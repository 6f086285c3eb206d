// Attacks on the pages that the broker shares: as its own uid, and as another.
#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/support/catch.hpp"
#include "tests/support/raw_client.hpp"
#include "tests/support/test_broker.hpp"

using namespace apportion;
using namespace apportion::testing;

namespace {

constexpr uid_t kStranger = 4242;

BrokerOptions two_jobs() {
  BrokerOptions options;
  options.device = 4_GiB;
  options.jobs = "[jobs.a]\nshare = \"0.5\"\n[jobs.b]\nshare = \"0.5\"\n";
  return options;
}

// How many ways of changing or taking away a page worked, out of those a client can try with its descriptor.
int attacks_that_worked(int fd, std::size_t bytes) {
  int worked = 0;
  const auto map = [&](int from) {
    void* page = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, from, 0);
    if (page == MAP_FAILED) return;
    ++worked;
    ::munmap(page, bytes);
  };
  const auto try_on = [&](int on) {
    map(on);
    if (::ftruncate(on, 0) == 0) ++worked;
    if (::ftruncate(on, static_cast<off_t>(bytes) * 2) == 0) ++worked;
    if (::fallocate(on, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) == 0) ++worked;
    if (::write(on, "x", 1) > 0) ++worked;
    if (::pwrite(on, "x", 1, 64) > 0) ++worked;
  };
  try_on(fd);
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  if (const Fd again{::open(path.c_str(), O_RDWR | O_CLOEXEC)}; again) try_on(again.get());
  if (const Fd cut{::open(path.c_str(), O_RDWR | O_TRUNC | O_CLOEXEC)}; cut) try_on(cut.get());
  if (::truncate(path.c_str(), 0) == 0) ++worked;
  void* reading = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
  if (reading == MAP_FAILED) return 100;
  if (::mprotect(reading, bytes, PROT_READ | PROT_WRITE) == 0) ++worked;
  if (::madvise(reading, bytes, MADV_REMOVE) == 0) ++worked;
  ::munmap(reading, bytes);
  return worked;
}

}  // namespace

TEST_CASE("F22: no page of the broker can be changed or taken away by its own uid or another") {
  TestBroker broker(two_jobs());
  RawClient client(broker.socket());
  client.hello("a");
  for (const std::optional<uid_t> uid : {std::optional<uid_t>{}, std::optional<uid_t>{kStranger}}) {
    if (uid && !can_change_uid()) continue;
    for (const int page : {0, 1}) {
      INFO("page " << page << " as uid " << (uid ? *uid : ::getuid()));
      CHECK(in_child(uid, [&] {
              return attacks_that_worked(client.pages()[static_cast<std::size_t>(page)].get(), 4096);
            }) == 0);
    }
    // The report page is the client's to write, and nobody's to take away.
    CHECK(in_child(uid, [&] {
            const int report = client.pages()[2].get();
            return (::ftruncate(report, 0) == 0) + (::ftruncate(report, 1 << 20) == 0) +
                   (::fcntl(report, F_ADD_SEALS, F_SEAL_WRITE) == 0);
          }) == 0);
  }
  CHECK(broker.job("a").job.sessions == 1);
  TestBroker::check_sums(broker.status());
}
