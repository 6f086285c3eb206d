// Gate A8: 10^6 pairs of one and of two threads, once all is mapped: no driver call, no system call, no host
// allocation. Exact.
//
// In a forked child, since a thread under the filter cannot even end. The child attaches itself; the driver
// calls are those that the simulator counted of it.
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <thread>

#include "bench/gates.hpp"
#include "bench/host_memory.hpp"
#include "bench/library.hpp"
#include "bench/replay.hpp"
#include "bench/system_calls.hpp"

namespace apportion::bench {
namespace {

struct Found {
  std::atomic<bool> finished{false};
  std::atomic<int> system_call{-1};
  std::uint64_t pairs = 0;
  std::uint64_t driver_calls = 0;
  std::uint64_t host_allocations = 0;
  char error[256] = "";
};

class Quiet {
 public:
  Quiet(Stage& stage, const Replay& trace, unsigned threads, std::uint64_t pairs, Found& found)
      : stage_(stage), trace_(trace), threads_(threads), pairs_(pairs), found_(found) {}

  // Ends the process.
  [[noreturn]] void run() {
    const std::uint64_t at_start = host_allocations();
    Result<Library> library = Library::attach(stage_.socket(), "bench");
    if (!library) give_up(library.error().message.c_str());
    if (host_allocations() == at_start) give_up("host allocations of the library are not counted");
    library_ = *library;
    if (const Status room = library_.make_room(trace_, threads_); !room)
      give_up(room.error().message.c_str());
    if (stage_.device().calls_of(::getpid()) == 0) give_up("driver calls of this process are not counted");
    for (unsigned i = 0; i < threads_; ++i)
      std::thread([this] { work(); }).detach();
    wait(warm_);
    const std::uint64_t calls = stage_.device().calls_of(::getpid());
    const std::uint64_t allocations = host_allocations();
    go_ = true;
    wait(done_);
    found_.host_allocations = host_allocations() - allocations;
    found_.driver_calls = stage_.device().calls_of(::getpid()) - calls;
    found_.pairs = freed_;
    found_.finished = true;
    ::_exit(0);
  }

 private:
  [[noreturn]] void give_up(const char* why) {
    std::snprintf(found_.error, sizeof found_.error, "%s", why);
    ::_exit(0);
  }

  void work() {
    std::vector<void*> blocks(trace_.blocks);
    for (int pass = 0; pass < 3; ++pass)
      if (!replay(library_, trace_, blocks)) give_up(apportion_last_error());
    ++warm_;
    while (!go_)
      ::sched_yield();
    if (!forbid_system_calls(found_.system_call, threads_ > 1)) give_up("no seccomp filter here");
    for (std::uint64_t freed = 0; freed < pairs_ / threads_; freed += trace_.pairs) {
      if (!replay(library_, trace_, blocks)) {
        std::strcpy(found_.error, "no room in the middle of warm pairs");
        break;
      }
      freed_ += trace_.pairs;
    }
    ++done_;
    for (;;) {
    }  // leaving would be a system call
  }

  void wait(const std::atomic<unsigned>& count) const {
    while (count < threads_)
      ::sched_yield();
  }

  Stage& stage_;
  const Replay& trace_;
  const unsigned threads_;
  const std::uint64_t pairs_;
  Found& found_;
  Library library_;
  std::atomic<unsigned> warm_{0}, done_{0};
  std::atomic<bool> go_{false};
  std::atomic<std::uint64_t> freed_{0};
};

Status measure(Run& run, Stage& stage, const NamedTrace& named, unsigned threads) {
  const Replay trace(named.trace);
  const std::uint64_t pairs = run.options.brief ? 20'000 : 1'000'000;
  void* shared = ::mmap(nullptr, sizeof(Found), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return system_error("cannot map shared memory", errno);
  Found& found = *new (shared) Found;
  const pid_t child = ::fork();
  if (child < 0) return system_error("cannot fork", errno);
  if (child == 0) Quiet(stage, trace, threads, pairs, found).run();
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  const std::string end = threads == 1 ? ", 1 thread" : ", " + std::to_string(threads) + " threads";
  Status measured = Done{};
  if (found.error[0] != '\0') {
    measured = Error{Errc::invalid, named.name + end + ": " + found.error};
  } else if (found.system_call >= 0) {
    run.report.add_count("A8", named.name, "system calls" + end, 1,
                         {{"system_call_number", found.system_call.load()}});
  } else if (!found.finished) {
    measured =
        Error{Errc::system, named.name + end + ": the child died, wait status " + std::to_string(status)};
  } else {
    const auto made = static_cast<double>(found.pairs);
    run.report.add_count("A8", named.name, "system calls" + end, 0, {{"pairs", made}});
    run.report.add_count("A8", named.name, "driver calls" + end, static_cast<double>(found.driver_calls),
                         {{"pairs", made}});
    run.report.add_count("A8", named.name, "heap allocations" + end,
                         static_cast<double>(found.host_allocations), {{"pairs", made}});
  }
  ::munmap(shared, sizeof(Found));
  return measured;
}

}  // namespace

Status measure_quiet(Run& run) {
  const Result<Stage*> stage = run.arena_stage();
  if (!stage) return stage.error();
  for (const NamedTrace& trace : run.traces) {
    for (const unsigned threads : {1U, 2U}) {
      if (Status measured = measure(run, **stage, trace, threads); !measured) return measured;
      // The child died with what it held.
      if (Status idle = (*stage)->wait_idle(); !idle) return idle;
    }
  }
  return Done{};
}

}  // namespace apportion::bench
