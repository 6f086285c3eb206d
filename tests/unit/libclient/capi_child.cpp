// What a test of the C API needs a fresh process for: CUDA does not survive fork. `capi_child WHAT`, with
// APPORTION_SOCKET in the environment; leaves with 0 when all was as it should be, else with the number of
// the step that was not.
#include <apportion/apportion.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>

#include "cudasim/control.hpp"

namespace {

apportion_client* client = nullptr;

void need(bool good, int step) {
  if (good) return;
  std::fprintf(stderr, "step %d: %s\n", step, apportion_last_error());
  std::_Exit(step);
}

bool pair(std::size_t bytes) {
  void* pointer = nullptr;
  return apportion_allocate(client, bytes, nullptr, 0, &pointer) == APPORTION_OK &&
         apportion_deallocate(client, pointer, nullptr) == APPORTION_OK;
}

// F48: runs after main, and after every exit handler of the library, if it had one.
struct AtExit {
  ~AtExit() {
    if (!armed) return;
    need(pair(4096), 20);
    if (detach) {
      need(apportion_detach(client) == APPORTION_OK, 21);
      need(!pair(4096), 22);
    }
    std::_Exit(0);
  }
  bool armed = false;
  bool detach = false;
} at_exit;

// From here on, any system call but exit_group kills the process with SIGSYS.
void forbid_system_calls() {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
  };
  const sock_fprog program{sizeof filter / sizeof *filter, filter};
  need(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, 30);
  need(::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0, 31);
}

// 10^6 pairs with room: no system call, and no driver call by the simulator's own count.
int quiet() {
  constexpr std::size_t kSizes[] = {512, 4096, 70'000, 1 << 20, 3 << 20, 9 << 20};
  std::string error;
  const auto control = cudasim::Control::open(std::getenv("CUDASIM_DIR"), {}, error);
  need(control != nullptr, 32);
  const int self = ::getpid();
  for (const std::size_t bytes : kSizes)
    need(pair(bytes), 33);
  const std::uint64_t before = control->calls_of(self);
  need(before > 0, 34);
  forbid_system_calls();
  int step = 0;
  for (int count = 0; count < 1'000'000 && step == 0; ++count)
    step = pair(kSizes[count % 6]) ? 0 : 35;
  if (step == 0 && control->calls_of(self) != before) step = 36;
  ::syscall(SYS_exit_group, step);
  return step;
}

}  // namespace

// The library's operator new is this one. Where armed, a "signal handler" interrupts it once, and must not
// come back here: the real one would hold malloc's lock.
namespace {
bool interrupt_next = false;
bool inside_handler = false;
int entered_again = 0;
apportion_status in_handler[3] = {};

void handler() {
  void* pointer = nullptr;
  inside_handler = true;
  in_handler[0] = apportion_allocate(client, 64 << 20, nullptr, 0, &pointer);
  in_handler[1] = apportion_trim_to(client, 0, nullptr);
  in_handler[2] = apportion_detach(client);
  inside_handler = false;
}
}  // namespace

[[gnu::noinline]] void* operator new(std::size_t size) {
  if (inside_handler) ++entered_again;
  if (interrupt_next) {
    interrupt_next = false;
    handler();
  }
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
// A sanitizer's own form would not come here, and its memory not from malloc.
[[gnu::noinline]] void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  try {
    return ::operator new(size);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace {

int in_malloc() {
  void* pointer = nullptr;
  interrupt_next = true;
  need(apportion_allocate(client, 8 << 20, nullptr, 0, &pointer) == APPORTION_OK, 50);
  need(!interrupt_next, 51);
  for (const apportion_status status : in_handler)
    need(status == APPORTION_BUSY, 52);
  need(entered_again == 0, 53);
  need(apportion_detach(client) == APPORTION_OK, 54);
  return 0;
}

std::string open_fds() {
  std::string list;
  for (int fd = 0; fd < 1024; ++fd) {
    if (::fcntl(fd, F_GETFD) >= 0) list += std::to_string(fd) + " ";
  }
  return list;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  const std::string fds = open_fds();
  if (what == "passed-on") return fds == argv[2] ? 0 : 40;  // F07: executed by "exec"
  need(apportion_attach(nullptr, &client) == APPORTION_OK, 10);
  if (what == "quiet") return quiet();
  if (what == "in-malloc") return in_malloc();
  need(pair(4096), 11);
  if (what == "at-exit" || what == "detach-at-exit") {
    at_exit.armed = true;
    at_exit.detach = what == "detach-at-exit";
    return 12;
  }
  if (what == "exec") {
    ::execl(argv[0], argv[0], "passed-on", fds.c_str(), nullptr);
    return 13;
  }
  need(apportion_detach(client) == APPORTION_OK, 14);
  return what == "attach" ? 0 : 15;
}
