// A program started by `apportion`, with its standard input and output held by us.
//
// Owns: the process. Promises: it is gone when the object goes (SIGKILL, then waited for); a line is returned
// whole or an error is. Never: a shell, a signal to a process it did not start.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "shm/fd.hpp"
#include "shm/result.hpp"

namespace apportion {

class ChildProcess {
 public:
  // argv[0] is a path. `variables` are added to our environment; an empty value removes one. `errors`: the
  // file that its standard error is appended to; empty: ours. Errc::not_found where there is no such program.
  [[nodiscard]] static Result<ChildProcess> start(const std::vector<std::string>& argv,
                                                  const std::map<std::string, std::string>& variables,
                                                  const std::string& errors);

  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ~ChildProcess();

  [[nodiscard]] pid_t pid() const { return pid_; }
  // One byte to its standard input.
  [[nodiscard]] Status poke();
  void close_input() { input_.reset(); }
  // Its next line of output, without the newline. Errc::timed_out; Errc::disconnected where it ended;
  // Errc::system where the user interrupts (cli/interrupt.hpp).
  [[nodiscard]] Result<std::string> line(std::chrono::steady_clock::time_point deadline);
  void signal(int number) const;
  // Exit status (128 + signal). Errc::timed_out.
  [[nodiscard]] Result<int> wait(std::chrono::steady_clock::time_point deadline);

 private:
  ChildProcess() = default;
  void end();

  pid_t pid_ = -1;
  Fd pidfd_;
  Fd input_;
  Fd output_;
  std::string buffer_;
};

}  // namespace apportion
