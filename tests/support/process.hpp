// A program that a test starts: its lines, its death, what it holds open.
//
// Owns: the process. Promises: it is gone when the object goes (SIGKILL, then waited for); every wait has a
// deadline and fails the test when that passes. Never: signals a process it did not start.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "shm/fd.hpp"

namespace apportion::testing {

using Clock = std::chrono::steady_clock;

// A loaded machine; what is waited for takes milliseconds on a healthy one.
inline constexpr std::chrono::seconds kPatience{60};

struct Launch {
  std::vector<std::string> command;              // command[0] is a path
  std::map<std::string, std::string> variables;  // on top of ours; an empty value removes one
  std::optional<uid_t> uid;          // and the gid of the same number, no other groups; needs root
  std::optional<rlim_t> open_files;  // RLIMIT_NOFILE, soft and hard
  std::string errors;                // file its standard error is appended to; empty: ours
};

class Process {
 public:
  explicit Process(const Launch& launch);
  ~Process();
  Process(Process&& other) noexcept;
  Process& operator=(Process&&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }
  // False: it does not read any more.
  [[nodiscard]] bool say(const std::string& line);
  // Its next line; nothing where its output ended or the time was up.
  [[nodiscard]] std::optional<std::string> line(std::chrono::milliseconds patience = kPatience);
  void close_input() { input_.reset(); }
  void signal(int number) const;
  // Exit status, 128 + signal where it was killed. Fails the test after `patience`.
  int wait(std::chrono::milliseconds patience = kPatience);
  [[nodiscard]] bool running();
  // SIGKILL, and gone when this returns.
  void kill();

 private:
  std::optional<int> reap(bool block);

  pid_t pid_ = -1;
  std::optional<int> status_;
  Fd pidfd_;
  Fd input_;
  Fd output_;
  std::string buffer_;
};

// Polls until `done` says so; false when the time is up.
[[nodiscard]] bool eventually(const std::function<bool()>& done,
                              std::chrono::milliseconds patience = kPatience);

// Of /proc; 0 where the process is gone.
[[nodiscard]] std::size_t open_fds(pid_t pid);
[[nodiscard]] std::vector<pid_t> children_of(pid_t pid);
[[nodiscard]] bool exists(pid_t pid);
[[nodiscard]] std::string text_of(const std::string& path);

// Does `work` in a forked child, as `uid` where one is given; its exit status, 101 where it cannot become
// that user.
[[nodiscard]] int in_child(std::optional<uid_t> uid, const std::function<int()>& work);

// True where this process may become other users. Tests with several uids need it.
[[nodiscard]] bool can_change_uid();

// Ends the test program, naming the test, when `limit` passes before the object goes: a loop that hangs must
// not be taken for one that runs.
class Watchdog {
 public:
  explicit Watchdog(std::chrono::seconds limit);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
};

// APPORTION_LONG=1: the full loops.
[[nodiscard]] unsigned rounds(unsigned in_ci, unsigned in_full);
// APPORTION_SEED, else one from the clock; printed either way.
[[nodiscard]] unsigned seed();

}  // namespace apportion::testing
