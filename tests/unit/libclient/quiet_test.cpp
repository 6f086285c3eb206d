// With room, the arena makes no system call and takes no memory from the host (gate A8 of the arena alone).
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <string>
#include <thread>

#include "libclient/arena.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/trace.hpp"
#include "tests/unit/libclient/model_source.hpp"

using namespace apportion;
using apportion::testing::ModelArena;
using apportion::testing::Trace;
using apportion::testing::TraceEvent;

// A sanitizer's own system calls and allocator would be caught, not ours.
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)

namespace {
std::atomic<std::uint64_t> host_allocations{0};
std::atomic<bool> host_is_full{false};
}  // namespace

[[gnu::noinline]] void* operator new(std::size_t size) {
  ++host_allocations;
  if (host_is_full) throw std::bad_alloc();
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace {

// From here on, any system call of this thread but exit_group kills the process with SIGSYS. waits: nor those
// with which a thread waits for a lock whose holder has lost its processor.
void forbid_system_calls(bool waits = false) {
  const std::uint32_t wait = waits ? SECCOMP_RET_ALLOW : SECCOMP_RET_KILL_PROCESS;
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 3, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sched_yield, 3, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clock_nanosleep, 2, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, wait),
  };
  const sock_fprog program{sizeof filter / sizeof *filter, filter};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) ::_exit(90);
  if (::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) ::_exit(91);
}

// Replays the trace again and again until `pairs` blocks were freed, and frees the rest. False where an
// allocation fails.
bool replay(Arena& arena, const Trace& trace, std::vector<Address>& blocks, std::uint64_t pairs) {
  for (std::uint64_t freed = 0; freed < pairs;) {
    for (const TraceEvent& event : trace.events) {
      Address& block = blocks[event.block];
      if (event.action == TraceEvent::Action::allocate) {
        block = arena.try_allocate({event.bytes}, event.stream);
        if (block == 0) return false;
      } else if (event.action == TraceEvent::Action::free && block != 0) {
        if (!arena.deallocate(block, event.stream).ok()) return false;
        block = 0;
        ++freed;
      }
    }
    for (Address& block : blocks) {
      if (block != 0 && !arena.deallocate(block, 0).ok()) return false;
      block = 0;
    }
  }
  return true;
}

}  // namespace

TEST_CASE("10^6 pairs of a training trace with room make no system call and no host allocation") {
  const Result<Trace> trace = testing::read_trace(APPORTION_TRACES "/dl_var_seq.csv");
  REQUIRE(trace.ok());
  ModelArena model(3000, 32_MiB);
  std::vector<Address> blocks(trace->blocks);
  // Warm: map what the trace needs, and one round.
  const Address large = *model.arena.allocate(40_GiB, 0);
  const Address small = *model.arena.allocate(1_MiB, 0);
  REQUIRE(model.arena.deallocate(large, 0).ok());
  REQUIRE(model.arena.deallocate(small, 0).ok());
  REQUIRE(replay(model.arena, *trace, blocks, 2000));

  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const std::uint64_t before = host_allocations;
    forbid_system_calls();
    if (!replay(model.arena, *trace, blocks, 1'000'000)) ::syscall(SYS_exit_group, 2);
    ::syscall(SYS_exit_group, host_allocations == before ? 0 : 3);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  INFO("status " << status << " (2: an allocation failed, 3: the host was asked for memory)");
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("10^6 pairs of two threads with room make no system call but waits, and no host allocation") {
  const char* const name = GENERATE("dl_fixed_seq", "dl_var_seq", "adv_pinhole");
  const Result<Trace> trace = testing::read_trace(std::string(APPORTION_TRACES "/") + name + ".csv");
  REQUIRE(trace.ok());
  ModelArena model(6000, 32_MiB);
  const Address large = *model.arena.allocate(180_GiB, 0);
  REQUIRE(model.arena.deallocate(large, 0).ok());
  std::vector<Address> small(400);
  for (Address& block : small)
    block = *model.arena.allocate(1_MiB, 0);
  for (const Address block : small)
    REQUIRE(model.arena.deallocate(block, 0).ok());

  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    std::atomic<int> warm{0};
    std::atomic<int> done{0};
    std::atomic<int> failed{0};
    std::atomic<std::uint64_t> before{0};
    const auto work = [&] {
      std::vector<Address> blocks(trace->blocks);
      if (!replay(model.arena, *trace, blocks, 4000)) failed = 4;
      for (++warm; warm < 2;)
        ::sched_yield();
      std::uint64_t none = 0;
      before.compare_exchange_strong(none, host_allocations);
      forbid_system_calls(true);
      if (!replay(model.arena, *trace, blocks, 500'000)) failed = 2;
      ++done;
      for (;;) {
      }  // leaving would be a system call
    };
    std::thread(work).detach();
    std::thread(work).detach();
    while (done < 2)
      ::sched_yield();
    if (host_allocations != before) failed = 3;
    ::_exit(failed);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  INFO("status " << status << " (2: an allocation failed, 3: the host was asked for memory)");
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE(
    "F31: a growth whose chunks are mapped ends well, though the host has no memory and others took all "
    "nodes") {
  ModelArena model(300, 32_MiB);
  constexpr Bytes kBlock{(1 << 20) + 512};
  // 200 chunks, each with one block at its end and room for 30 before it: more blocks than there are nodes.
  std::vector<Address> room;
  for (int chunk = 0; chunk < 200; ++chunk) {
    room.push_back(*model.arena.allocate(32_MiB - kBlock, 0));
    REQUIRE(model.arena.allocate(kBlock, 0).ok());
  }
  for (const Address block : room)
    REQUIRE(model.arena.deallocate(block, 0).ok());
  std::uint64_t others = 0;
  model.source.on_call = [&](const std::string& call) {
    if (call != "map") return;
    model.source.on_call = nullptr;
    host_is_full = true;
    while (model.arena.try_allocate(kBlock, 0) != 0)
      ++others;
    host_is_full = false;
  };
  const Result<Address> grown = model.arena.allocate(63_MiB, 0);
  REQUIRE(grown.ok());
  CHECK(others > 3000);
  CHECK(others < 200 * 30);
  CHECK(model.broken() == "");
}

TEST_CASE("the filter of the test above kills on a system call, and the counter counts") {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    forbid_system_calls();
    ::syscall(SYS_getppid);
    ::syscall(SYS_exit_group, 0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGSYS);
  const std::uint64_t before = host_allocations;
  ::operator delete(::operator new(1));
  CHECK(host_allocations > before);
}

#endif
