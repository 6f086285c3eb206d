// Ctrl-C, and its like, in a command that has started something: it must end what it started, and then
// itself.
//
// Promises: while one lives, SIGINT, SIGTERM and SIGHUP make ChildProcess::line answer an error and
// interrupted() true, whenever they come; afterwards they do what they did before. Never: more than one at a
// time.
#pragma once

#include <signal.h>

#include <array>

#include "shm/fd.hpp"

namespace apportion {

class CatchInterrupts {
 public:
  CatchInterrupts();
  ~CatchInterrupts();
  CatchInterrupts(const CatchInterrupts&) = delete;
  CatchInterrupts& operator=(const CatchInterrupts&) = delete;

 private:
  Fd event_;
  std::array<struct sigaction, 3> before_{};
};

[[nodiscard]] bool interrupted();
// Readable once a signal came; -1 where nobody catches interrupts.
[[nodiscard]] int interrupt_fd();

}  // namespace apportion
