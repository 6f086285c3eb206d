// What the tests of shm/ share: children that are waited for, a count of open fds, a folder of their own.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "shm/channel.hpp"
#include "shm/fd.hpp"

namespace apportion::testing {

inline constexpr uid_t kStranger = 65534;

inline bool is_root() {
  return ::geteuid() == 0;
}

inline channel::Deadline soon(int seconds = 20) {
  return std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
}

// Runs `body` in a forked child; what it returns is the exit code. The child makes no assertions.
template <typename Body>
pid_t start_child(Body body) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::signal(SIGABRT, SIG_DFL);  // not the test framework's report
    ::_exit(body());
  }
  return pid;
}

// Exit code, or minus the signal.
inline int wait_for_child(pid_t pid) {
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0) {
    if (errno != EINTR) return -1000;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

template <typename Body>
int run_child(Body body) {
  return wait_for_child(start_child(body));
}

inline std::size_t open_fds() {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    static_cast<void>(entry);
    ++count;
  }
  return count;
}

inline std::vector<Fd> some_fds(std::size_t count) {
  std::vector<Fd> fds;
  for (std::size_t i = 0; i < count; ++i)
    fds.emplace_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  return fds;
}

inline std::vector<int> numbers_of(const std::vector<Fd>& fds) {
  std::vector<int> numbers;
  for (const Fd& fd : fds)
    numbers.push_back(fd.get());
  return numbers;
}

// A new folder, gone with its contents at the end.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "apportion-shm-XXXXXX").string();
    if (::mkdtemp(name.data()) != nullptr) path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// A small generator whose seed is the whole story of a failure.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {  // splitmix64
    std::uint64_t z = (state_ += 0x9e37'79b9'7f4a'7c15);
    z = (z ^ (z >> 30)) * 0xbf58'476d'1ce4'e5b9;
    z = (z ^ (z >> 27)) * 0x94d0'49bb'1331'11eb;
    return z ^ (z >> 31);
  }
  std::uint64_t below(std::uint64_t bound) { return next() % bound; }

 private:
  std::uint64_t state_;
};

}  // namespace apportion::testing
