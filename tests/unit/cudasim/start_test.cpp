// How the simulator starts: one folder for all, several users, and the places where it refuses to run.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>

#include "cudasim/store/parts.hpp"
#include "tests/support/catch.hpp"
#include "tests/unit/cudasim/child.hpp"

using namespace cudasim;
using namespace cudasim::testing;

namespace {

constexpr u64 kStep = kGranularity;

// What a child wrote on its standard error.
class ErrorOutput {
 public:
  ErrorOutput() : fd_(::open("/tmp", O_RDWR | O_TMPFILE | O_CLOEXEC, 0600)) { REQUIRE(fd_ >= 0); }
  ~ErrorOutput() { ::close(fd_); }
  int fd() const { return fd_; }
  std::string text() const {
    char bytes[4096];
    const ssize_t length = ::pread(fd_, bytes, sizeof bytes, 0);
    return std::string(bytes, static_cast<size_t>(length < 0 ? 0 : length));
  }

 private:
  int fd_;
};

// The code of cuInit in a fresh process with these variables; its lines on standard error.
u64 init_with(const std::string& folder, std::vector<std::pair<std::string, std::string>> environment,
              std::string& lines) {
  ErrorOutput output;
  Child::Options options;
  options.environment = std::move(environment);
  options.error_output = output.fd();
  Child child(
      folder, [](Driver& driver, Link& link) { link.send(static_cast<u64>(SYM(driver, cuInit)(0))); },
      options);
  const u64 code = child.link().receive();
  child.wait();
  lines = output.text();
  return code;
}

}  // namespace

TEST_CASE("the first process makes the devices, later ones see the same whatever their variables say") {
  ScratchFolder scratch;
  const std::string folder = scratch.path() + "/devices";
  auto describe = [](Driver& driver, Link& link) {
    int count = 0;
    MUST(SYM(driver, cuInit)(0) == CUDA_SUCCESS);
    MUST(SYM(driver, cuDeviceGetCount)(&count) == CUDA_SUCCESS);
    link.send(static_cast<u64>(count));
    for (int i = 0; i < count; i++) {
      size_t bytes = 0;
      CUuuid uuid{};
      u64 half = 0;
      MUST(SYM(driver, cuDeviceTotalMem)(&bytes, i) == CUDA_SUCCESS);
      MUST(SYM(driver, cuDeviceGetUuid_v2)(&uuid, i) == CUDA_SUCCESS);
      std::memcpy(&half, uuid.bytes, sizeof half);
      link.send(bytes);
      link.send(half);
    }
  };
  Child::Options first_options, second_options;
  first_options.environment = {{"CUDASIM_DEVICES", "8GiB,2GiB"}};
  second_options.environment = {{"CUDASIM_DEVICES", "1GiB"}};
  Child first(folder, describe, first_options);
  REQUIRE(first.link().receive() == 2);
  Child second(folder, describe, second_options);
  REQUIRE(second.link().receive() == 2);
  for (u64 bytes : {8ull << 30, 2ull << 30}) {
    CHECK(first.link().receive() == bytes);
    CHECK(second.link().receive() == bytes);
    CHECK(first.link().receive() == second.link().receive());  // the UUID
  }
}

TEST_CASE("users who start at one moment share one device") {
  REQUIRE(::geteuid() == 0);
  for (int round = 0; round < 20; round++) {
    ScratchFolder scratch;
    const std::string folder = scratch.path() + "/devices";
    const mode_t former = ::umask(0077);  // that of all children
    std::vector<std::unique_ptr<Child>> children;
    for (const int uid : {0, 1234, 1235, 1236}) {
      Child::Options options;
      options.uid = uid;
      children.push_back(std::make_unique<Child>(
          folder,
          [](Driver& driver, Link& link) {
            if (link.receive() == 1) link.send(static_cast<u64>(SYM(driver, cuInit)(0)));
          },
          options));
    }
    ::umask(former);
    for (const auto& child : children)
      child->link().send(1);
    for (const auto& child : children)
      CHECK(child->link().receive() == CUDA_SUCCESS);
    struct stat status {};
    REQUIRE(::stat(folder.c_str(), &status) == 0);
    CHECK((status.st_mode & 07777) == 01777);
  }
}

TEST_CASE("a part of the device folder appears with its rights, whatever the umask") {
  ScratchFolder scratch;
  const mode_t former = ::umask(0077);
  std::string error;
  int wrong = 0;
  for (int round = 0; round < 100; round++) {
    const std::string path = scratch.path() + "/part-" + std::to_string(round);
    const bool folder = round % 2 == 0;
    std::atomic<bool> looking{false};
    mode_t first = 0;
    std::thread observer([&] {
      struct stat status {};
      looking = true;
      while (::stat(path.c_str(), &status) != 0) {
      }
      first = status.st_mode & 07777;
    });
    while (!looking) {
    }
    const int fd = folder ? -1 : open_file(path, error);
    if (folder ? !make_folder(path, kDeviceFolderMode, error) : fd < 0) std::abort();  // the observer waits
    ::close(fd);
    observer.join();
    const mode_t wanted = folder ? kDeviceFolderMode : 0666;
    if (first != wanted) wrong++;
  }
  ::umask(former);
  CHECK(wrong == 0);
}

TEST_CASE("a folder that only temporary users had goes with the last of them, and no other does") {
  enum class Second { none, temporary, lasting };
  for (const Second second : {Second::none, Second::temporary, Second::lasting}) {
    ScratchFolder scratch;
    const std::string folder = scratch.path() + "/devices";
    const auto body = [](Driver& driver, Link& link) {
      link.send(static_cast<u64>(SYM(driver, cuInit)(0)));
      static_cast<void>(link.receive());
      std::exit(0);  // its exit handlers run, as at the end of main
    };
    Child::Options temporary;
    temporary.environment = {{"CUDASIM_TEMPORARY", "1"}};
    Child maker(folder, body, temporary);
    REQUIRE(maker.link().receive() == CUDA_SUCCESS);
    std::unique_ptr<Child> user;
    if (second != Second::none) {
      user =
          std::make_unique<Child>(folder, body, second == Second::temporary ? temporary : Child::Options{});
      REQUIRE(user->link().receive() == CUDA_SUCCESS);
    }
    maker.link().send(1);
    CHECK(maker.wait() == 0);
    CHECK(std::filesystem::exists(folder) == (second != Second::none));
    if (!user) continue;
    user->link().send(1);
    CHECK(user->wait() == 0);
    CHECK(std::filesystem::exists(folder) == (second == Second::lasting));
  }
}

TEST_CASE("beside a real NVIDIA device it refuses to run, unless forced") {
  ScratchFolder scratch;
  std::filesystem::create_directories(scratch.path() + "/root/dev");
  std::ofstream(scratch.path() + "/root/dev/nvidiactl") << "x";
  const std::pair<std::string, std::string> root{"CUDASIM_PROBE_ROOT", scratch.path() + "/root"};
  std::string lines;
  CHECK(init_with(scratch.path() + "/a", {root, {"CUDASIM_FORCE", ""}}, lines) ==
        CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
  CHECK(lines.find("CUDASIM_FORCE=1") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(scratch.path() + "/a"));
  CHECK(init_with(scratch.path() + "/a", {root, {"CUDASIM_FORCE", "1"}}, lines) == CUDA_SUCCESS);
}

TEST_CASE("a file system that is too small is refused in one line that names the remedy") {
  ScratchFolder scratch;
  std::string lines;
  CHECK(init_with(scratch.path() + "/a", {{"CUDASIM_SHM_MIN", "1024TiB"}}, lines) ==
        CUDA_ERROR_SYSTEM_NOT_READY);
  CHECK(lines.find("--shm-size") != std::string::npos);
  CHECK(std::count(lines.begin(), lines.end(), '\n') == 1);
}

TEST_CASE("a variable that cannot be read is refused with its text") {
  ScratchFolder scratch;
  const auto [name, value] =
      GENERATE(std::pair{"CUDASIM_DEVICES", "80 gigs"}, std::pair{"CUDASIM_DEVICES", "8GiB,"},
               std::pair{"CUDASIM_DEATH_MS", "500-0"}, std::pair{"CUDASIM_STRICT", "yes"},
               std::pair{"CUDASIM_CONTEXT", "-1"}, std::pair{"CUDASIM_BREAK", "one"});
  std::string lines;
  CHECK(init_with(scratch.path() + "/a", {{name, value}}, lines) == CUDA_ERROR_SYSTEM_NOT_READY);
  CHECK(lines.find(std::string(name) + "=" + value) != std::string::npos);
}

TEST_CASE("a folder of another version is refused and left alone") {
  ScratchFolder scratch;
  std::string lines;
  REQUIRE(init_with(scratch.path() + "/a", {}, lines) == CUDA_SUCCESS);
  const int fd = ::open((scratch.path() + "/a/control").c_str(), O_RDWR | O_CLOEXEC);
  const u32 version = kLayoutVersion + 1;
  REQUIRE(::pwrite(fd, &version, sizeof version, offsetof(ControlPage, version)) == sizeof version);
  ::close(fd);
  CHECK(init_with(scratch.path() + "/a", {}, lines) == CUDA_ERROR_SYSTEM_NOT_READY);
  CHECK(lines.find("another version") != std::string::npos);
}

TEST_CASE("the A100 profile delays what the contract gives a figure for, and is off by default") {
  FolderOptions options;
  options.a100_latency = GENERATE(false, true);
  TemporaryFolder folder(options);
  const FunctionRecord& create =
      folder->folder().page().functions[folder->folder().function_index("cuMemCreate")];
  CHECK(create.delay_ns == (options.a100_latency ? 195'000 : 0));
  Child child(folder.path(), [](Driver& driver, Link& link) {
    SYM(driver, cuInit)(0);
    const u64 start = monotonic_ns();
    for (int i = 0; i < 10; i++)
      create_chunk(driver, kStep);
    link.send(monotonic_ns() - start);
  });
  const u64 spent_ns = child.link().receive();
  if (options.a100_latency) CHECK(spent_ns >= 1'950'000);
}

TEST_CASE("every undocumented export table is answered with not found") {
  TemporaryFolder folder;
  Child child(folder.path(), [](Driver& driver, Link&) {
    MUST(SYM(driver, cuInit)(0) == CUDA_SUCCESS);
    for (int i = 0; i < 64; i++) {
      CUuuid id{};
      std::memset(id.bytes, i * 37, sizeof id.bytes);
      const void* table = &id;
      MUST(SYM(driver, cuGetExportTable)(&table, &id) == CUDA_ERROR_NOT_FOUND && table == nullptr);
    }
  });
  CHECK(child.wait() == 0);
}

TEST_CASE(
    "users of different uids share one device: memory made by one is read, freed and reaped by another") {
  if (::getuid() != 0) APPORTION_SKIP("needs root to become other users");
  ScratchFolder scratch;
  const std::string folder = scratch.path() + "/devices";
  Child::Options alice, bob;
  alice.uid = 65501;
  bob.uid = 65502;
  alice.environment = {{"CUDASIM_DEVICES", "64MiB"}, {"CUDASIM_CONTEXT", "2MiB"}};
  auto maker = std::make_unique<Child>(
      folder,
      [](Driver& driver, Link& link) {
        ::umask(0077);  // must not keep the other user out
        use_primary_context(driver);
        auto handle = create_chunk(driver, kStep);
        put_word(driver, map_chunk(driver, handle, kStep), 4711);
        link.send(1, export_chunk(driver, handle));
        link.receive();
      },
      alice);
  int fd = -1;
  REQUIRE(maker->link().receive(&fd) == 1);
  Child user(
      folder,
      [](Driver& driver, Link& link) {
        int received = -1;
        link.receive(&received);
        use_primary_context(driver);
        auto handle = import_chunk(driver, received);
        ::close(received);
        link.send(get_word(driver, map_chunk(driver, handle, kStep)));
        link.receive();  // by now the maker is dead
        CUmemGenericAllocationHandle last = 0;
        size_t free_bytes = 0;
        MUST(SYM(driver, cuMemGetInfo)(&free_bytes, nullptr) == CUDA_SUCCESS);
        MUST(free_bytes == (64u << 20) - kStep - (2u << 20));
        for (u64 i = 0; i < free_bytes / kStep; i++)
          last = create_chunk(driver, kStep);
        link.send(last != 0);
      },
      bob);
  user.link().send(1, fd);
  ::close(fd);
  REQUIRE(user.link().receive() == 4711);
  maker->kill();
  user.link().send(1);
  CHECK(user.link().receive() == 1);
  CHECK(user.wait() == 0);
}

TEST_CASE("the store takes sizes as people write them and refuses the rest") {
  CHECK(parse_size("80GiB") == 80ull << 30);
  CHECK(parse_size("512M") == 512ull << 20);
  CHECK(parse_size("2097152") == 2097152);
  for (const char* bad : {"", "GiB", "-1", "1.5GiB", "1 GiB", "99999999999999999999", "9999999TiB", "1XiB"})
    CHECK_FALSE(parse_size(bad));
}
