// The library as a user has it: only apportion.h, over libapportion.so.
#include <apportion/apportion.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/catch.hpp"
#include "tests/support/run_program.hpp"
#include "tests/unit/libclient/fake_broker.hpp"

using namespace apportion::testing;

namespace {

class Attached {
 public:
  explicit Attached(const FakeBroker& broker, std::uint32_t flags = 0) {
    apportion_attach_options options = {};
    options.struct_size = sizeof options;
    options.job = "trainer";
    options.socket = broker.path().c_str();
    options.flags = flags;
    if (apportion_attach(&options, &client_) != APPORTION_OK) FAIL(apportion_last_error());
  }
  ~Attached() { apportion_detach(client_); }
  Attached(const Attached&) = delete;
  Attached& operator=(const Attached&) = delete;
  operator apportion_client*() const { return client_; }

 private:
  apportion_client* client_ = nullptr;
};

void* must_allocate(apportion_client* client, std::size_t bytes, std::uint32_t flags = 0) {
  void* pointer = nullptr;
  if (apportion_allocate(client, bytes, nullptr, flags, &pointer) != APPORTION_OK)
    FAIL(apportion_last_error());
  return pointer;
}

// Runs `work` in a forked child and answers its exit code; -1 where a signal ended it.
template <typename Work>
int in_child(Work&& work) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(work());
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child) return -2;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// capi_child.cpp in a process of its own.
int run_child(const std::string& what, const FakeBroker& broker,
              std::map<std::string, std::string> variables = {}) {
  variables["APPORTION_SOCKET"] = broker.path();
  return run_program({built("tests/unit/libclient/capi_child"), what}, variables).status;
}

bool text_has(const char* part) {
  return std::strstr(apportion_last_error(), part) != nullptr;
}

}  // namespace

TEST_CASE("the C API: attach, allocate, free, trim, figures, detach") {
  FakeBroker broker;
  apportion_client* client = nullptr;
  apportion_attach_options options = {};
  options.struct_size = sizeof options;
  options.socket = broker.path().c_str();
  REQUIRE(apportion_attach(&options, &client) == APPORTION_OK);
  CHECK(broker.seen().label == "test_capi");
  void* pointer = must_allocate(client, 3 << 20);
  apportion_stats stats = {};
  stats.struct_size = sizeof stats;
  REQUIRE(apportion_get_stats(client, &stats) == APPORTION_OK);
  CHECK(stats.bytes_in_use == 3 << 20);
  CHECK(stats.bytes_limit == 64 << 20);
  CHECK(stats.num_allocs == 1);
  apportion_info info = {};
  info.struct_size = sizeof info;
  REQUIRE(apportion_get_info(client, &info) == APPORTION_OK);
  CHECK(std::string(info.job) == "trainer");
  CHECK(info.total_bytes == 64 << 20);
  CHECK(info.simulated == 1);
  CHECK(apportion_deallocate(client, pointer, nullptr) == APPORTION_OK);
  CHECK(apportion_check(client) == APPORTION_OK);
  size_t returned = 0;
  CHECK(apportion_trim_to(client, 0, &returned) == APPORTION_OK);
  CHECK(returned == 32 << 20);  // growth asks for 32 MiB at least
  CHECK(apportion_detach(client) == APPORTION_OK);
  CHECK(broker.seen().detaches == 1);
}

TEST_CASE("wrong arguments are refused with a line that names them, and out-parameters stay as they were") {
  FakeBroker broker;
  const Attached client(broker);
  auto* const mark = reinterpret_cast<void*>(0x1234);
  void* pointer = mark;
  CHECK(apportion_allocate(client, 0, nullptr, 0, &pointer) == APPORTION_INVALID);
  CHECK(apportion_allocate(client, SIZE_MAX, nullptr, 0, &pointer) == APPORTION_OUT_OF_MEMORY);
  CHECK(apportion_allocate(client, 1, nullptr, 0xff, &pointer) == APPORTION_INVALID);
  CHECK(apportion_allocate(client, 1, nullptr, 0, nullptr) == APPORTION_INVALID);
  CHECK(apportion_allocate(client, 512 << 20, nullptr, 0, &pointer) == APPORTION_QUOTA);
  CHECK(text_has("more than its limit"));
  CHECK(pointer == mark);
  CHECK(apportion_deallocate(client, &broker, nullptr) == APPORTION_INVALID);
  CHECK(text_has("no live block"));
  CHECK(apportion_deallocate(client, nullptr, nullptr) == APPORTION_OK);
  void* block = must_allocate(client, 4096);
  CHECK(apportion_deallocate(client, block, nullptr) == APPORTION_OK);
  CHECK(apportion_deallocate(client, block, nullptr) == APPORTION_INVALID);
  apportion_info info = {};
  CHECK(apportion_get_info(client, &info) == APPORTION_INVALID);
  CHECK(text_has("struct_size"));
  CHECK(apportion_get_stats(client, nullptr) == APPORTION_INVALID);
  CHECK(apportion_attach(nullptr, nullptr) == APPORTION_INVALID);
}

TEST_CASE("an older caller's shorter structure is filled as far as it goes") {
  FakeBroker broker;
  const Attached client(broker);
  apportion_info info;
  std::memset(&info, 0x77, sizeof info);
  info.struct_size = offsetof(apportion_info, guarantee_bytes);
  REQUIRE(apportion_get_info(client, &info) == APPORTION_OK);
  CHECK(info.total_bytes == 64 << 20);
  CHECK(info.guarantee_bytes == 0x7777777777777777);
}

TEST_CASE("a newer caller's longer structure is filled as far as the library knows it, and says how far") {
  FakeBroker broker;
  const Attached client(broker);
  struct Newer {
    apportion_info known;
    std::uint64_t unknown;
  } newer = {};
  newer.known.struct_size = sizeof newer;
  newer.unknown = 77;
  REQUIRE(apportion_get_info(client, &newer.known) == APPORTION_OK);
  CHECK(newer.known.struct_size == sizeof(apportion_info));
  CHECK(newer.known.total_bytes == 64 << 20);
  CHECK(newer.unknown == 77);
}

TEST_CASE(
    "an option that this library is too old for is refused where it is used, and fits where it is not") {
  FakeBroker broker;
  struct Newer {
    apportion_attach_options known;
    std::uint64_t unknown;
  } newer = {};
  newer.known.struct_size = sizeof newer;
  newer.known.socket = broker.path().c_str();
  newer.unknown = 1;
  apportion_client* client = nullptr;
  CHECK(apportion_attach(&newer.known, &client) == APPORTION_INVALID);
  CHECK(text_has("too old"));
  CHECK(client == nullptr);
  newer.unknown = 0;
  REQUIRE(apportion_attach(&newer.known, &client) == APPORTION_OK);
  CHECK(apportion_detach(client) == APPORTION_OK);
  newer.known.struct_size = offsetof(apportion_attach_options, label);  // an older caller's
  REQUIRE(apportion_attach(&newer.known, &client) == APPORTION_OK);
  CHECK(apportion_detach(client) == APPORTION_OK);
}

TEST_CASE("a detach that answers busy leaves the session as it was") {
  FakeBroker broker;
  const Attached client(broker);
  void* block = must_allocate(client, 4096);
  cudasim::Control& control = SimulatedDevice::instance().folder->control();
  cudasim::Fault capturing;
  capturing.code = 906;  // CUDA_ERROR_STREAM_CAPTURE_IMPLICIT: a blocking stream is being captured
  control.set_fault("cuStreamIsCapturing", capturing);
  CHECK(apportion_detach(client) == APPORTION_BUSY);
  CHECK(text_has("captured"));
  control.clear_fault("cuStreamIsCapturing");
  CHECK(apportion_deallocate(client, block, nullptr) == APPORTION_OK);
  CHECK(apportion_detach(client) == APPORTION_OK);
  CHECK(broker.seen().detaches == 1);
}

TEST_CASE("of several threads that detach a session, one does") {
  FakeBroker broker;
  for (int round = 0; round < 20; ++round) {
    apportion_attach_options options = {};
    options.struct_size = sizeof options;
    options.socket = broker.path().c_str();
    apportion_client* client = nullptr;
    REQUIRE(apportion_attach(&options, &client) == APPORTION_OK);
    std::atomic<int> done{0};
    std::atomic<int> late{0};
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 3; ++thread) {
      threads.emplace_back([&] {
        const apportion_status status = apportion_detach(client);
        done += status == APPORTION_OK ? 1 : 0;
        late += status == APPORTION_NOT_ATTACHED ? 1 : 0;
      });
    }
    for (std::thread& thread : threads)
      thread.join();
    CHECK(done == 1);
    CHECK(late == 2);
  }
  CHECK(broker.seen().detaches == 20);
}

TEST_CASE("F48: a handler that interrupted malloc inside a call is told busy, without malloc") {
  FakeBroker broker;
  CHECK(run_child("in-malloc", broker) == 0);
}

TEST_CASE("F06: a child is not attached either where the parent had detached before") {
  FakeBroker broker;
  { const Attached client(broker); }
  CHECK(in_child([&] {
          apportion_attach_options options = {};
          options.struct_size = sizeof options;
          options.socket = broker.path().c_str();
          apportion_client* client = nullptr;
          if (apportion_attach(&options, &client) != APPORTION_NOT_ATTACHED) return 1;
          return text_has("forked child") ? 0 : 2;
        }) == 0);
}

TEST_CASE("F48: after close, calls answer not attached, whatever the handle") {
  FakeBroker broker;
  apportion_client* gone = nullptr;
  {
    const Attached client(broker);
    gone = client;
  }
  void* pointer = nullptr;
  for (apportion_client* handle :
       {gone, static_cast<apportion_client*>(nullptr), reinterpret_cast<apportion_client*>(&broker)}) {
    CHECK(apportion_allocate(handle, 1, nullptr, 0, &pointer) == APPORTION_NOT_ATTACHED);
    CHECK(apportion_detach(handle) == APPORTION_NOT_ATTACHED);
  }
  CHECK(text_has("not attached"));
  const Attached again(broker);
  CHECK(static_cast<apportion_client*>(again) != gone);
  CHECK(apportion_allocate(gone, 1, nullptr, 0, &pointer) == APPORTION_NOT_ATTACHED);
}

TEST_CASE("a missing broker's error lists every path tried and the command that starts one") {
  apportion_attach_options options = {};
  options.struct_size = sizeof options;
  options.socket = "/nonexistent/apportion.sock";
  apportion_client* client = nullptr;
  CHECK(apportion_attach(&options, &client) == APPORTION_NOT_FOUND);
  CHECK(client == nullptr);
  CHECK(text_has("/nonexistent/apportion.sock"));
  CHECK(text_has("apportiond --config"));
}

TEST_CASE("job and socket come from the environment where no argument says otherwise") {
  FakeBroker broker;
  CHECK(run_child("attach", broker, {{"APPORTION_JOB", "from-environment"}}) == 0);
  CHECK(broker.seen().job == "from-environment");
  CHECK(broker.seen().label == "capi_child");
}

TEST_CASE("F06: a forked child is not attached, and the parent notices nothing") {
  FakeBroker broker;
  const Attached client(broker);
  void* block = must_allocate(client, 4096);
  CHECK(in_child([&] {
          void* pointer = nullptr;
          apportion_client* second = nullptr;
          if (apportion_allocate(client, 1, nullptr, 0, &pointer) != APPORTION_NOT_ATTACHED) return 1;
          if (!text_has("forked child")) return 2;
          if (apportion_deallocate(client, block, nullptr) != APPORTION_NOT_ATTACHED) return 3;
          if (apportion_trim_to(client, 0, nullptr) != APPORTION_NOT_ATTACHED) return 4;
          if (apportion_attach(nullptr, &second) != APPORTION_NOT_ATTACHED) return 5;
          if (apportion_detach(client) != APPORTION_NOT_ATTACHED) return 6;
          return 0;
        }) == 0);
  CHECK(broker.seen().hang_ups == 0);
  CHECK(apportion_check(client) == APPORTION_OK);
  CHECK(apportion_deallocate(client, block, nullptr) == APPORTION_OK);
  must_allocate(client, 40 << 20);
}

TEST_CASE(
    "F06: the child's copy of the session's socket is closed, so that the session ends with its process") {
  FakeBroker broker;
  const std::size_t sockets_before = broker.seen().hang_ups;
  int hold[2];
  REQUIRE(::pipe(hold) == 0);
  pid_t child = 0;
  {
    const Attached client(broker);
    child = ::fork();
    if (child == 0) {
      ::close(hold[1]);
      char byte = 0;
      while (::read(hold[0], &byte, 1) > 0) {
      }
      ::_exit(0);
    }
    REQUIRE(child > 0);
  }
  CHECK(broker.wait([&](const auto& seen) { return seen.hang_ups == static_cast<int>(sockets_before) + 1; }));
  ::close(hold[0]);
  ::close(hold[1]);
  int status = 0;
  CHECK(::waitpid(child, &status, 0) == child);
}

TEST_CASE("F07: nothing of a session is passed on to a program that is executed, and the session ends") {
  FakeBroker broker;
  CHECK(run_child("exec", broker) == 0);
  CHECK(broker.wait([](const auto& seen) { return seen.hang_ups == 1; }));
  CHECK(broker.seen().detaches == 0);
}

namespace {
apportion_client* handler_client = nullptr;
std::atomic<int> handler_runs{0};
std::atomic<int> handler_odd{0};
void allocate_in_handler(int) {
  void* pointer = nullptr;
  const apportion_status status = apportion_allocate(handler_client, 4096, nullptr, 0, &pointer);
  if (status == APPORTION_OK) apportion_deallocate(handler_client, pointer, nullptr);
  if (status != APPORTION_OK && status != APPORTION_BUSY) ++handler_odd;
  ++handler_runs;
}
}  // namespace

TEST_CASE("F48: allocation in a signal handler works or answers busy, and never deadlocks") {
  FakeBroker broker;
  const Attached client(broker);
  must_allocate(client, 1);  // so that there is room
  handler_client = client;
  struct sigaction action = {};
  struct sigaction old = {};
  action.sa_handler = allocate_in_handler;
  REQUIRE(::sigaction(SIGALRM, &action, &old) == 0);
  itimerval every{{0, 200}, {0, 200}};
  REQUIRE(::setitimer(ITIMER_REAL, &every, nullptr) == 0);
  while (handler_runs < 200) {
    void* pointer = must_allocate(client, 8192);
    CHECK(apportion_deallocate(client, pointer, nullptr) == APPORTION_OK);
  }
  every = {};
  ::setitimer(ITIMER_REAL, &every, nullptr);
  ::sigaction(SIGALRM, &old, nullptr);
  CHECK(handler_odd == 0);
  CHECK(apportion_check(client) == APPORTION_OK);
}

TEST_CASE("F48: allocation from a static destructor works") {
  FakeBroker broker;
  CHECK(run_child("at-exit", broker) == 0);
  CHECK(broker.wait([](const auto& seen) { return seen.hang_ups == 1; }));
}

TEST_CASE("F48: a session can be detached from a static destructor") {
  FakeBroker broker;
  CHECK(run_child("detach-at-exit", broker) == 0);
  CHECK(broker.seen().detaches == 1);
}

TEST_CASE("65 sessions are one too many, and say so") {
  FakeBroker broker;
  std::vector<std::unique_ptr<Attached>> sessions;
  for (int i = 0; i < 64; ++i)
    sessions.push_back(std::make_unique<Attached>(broker));
  apportion_attach_options options = {};
  options.struct_size = sizeof options;
  options.socket = broker.path().c_str();
  apportion_client* client = nullptr;
  CHECK(apportion_attach(&options, &client) == APPORTION_BUSY);
  sessions.pop_back();
  const Attached fits(broker);
}

TEST_CASE("with room, 10^6 pairs through the C API make no system call and no driver call") {
  FakeBroker broker;
  CHECK(run_child("quiet", broker) == 0);
}
